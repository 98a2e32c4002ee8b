"""The model, as the process that has one imports it: the planner, and the client that it asks.

Importing this costs what aiohttp costs (some 200 ms), so it happens only where a model is configured.
"""

from __future__ import annotations

from hermesd.agent.http_model import HttpModel
from hermesd.agent.model_planner import ChatModel, ModelPlanner

__all__ = ["ChatModel", "HttpModel", "ModelPlanner"]
