"""The public names of the library, for type checkers; __init__.py imports each on first use."""

from daemon.agent.agent import Agent, AgentOptions, AgentServices
from daemon.agent.loop import LoopLimits
from daemon.agent.tool_calls import AllowAll
from daemon.errors import ProviderError, ToolFailed
from daemon.memory.memory import Memory
from daemon.models import (
    Chunk,
    Effect,
    FunctionCall,
    Image,
    LLMMessage,
    LLMResponse,
    Reply,
    Status,
    ToolContext,
    Usage,
    Verdict,
)
from daemon.policy.policy import Policy
from daemon.providers import LLMProvider, create_provider
from daemon.providers.anthropic_base import AnthropicBaseProvider
from daemon.providers.claude import ClaudeProvider
from daemon.providers.minimax import MiniMaxProvider
from daemon.providers.open_source import OpenSourceProvider
from daemon.providers.openai import OpenAIProvider
from daemon.store.database import Database
from daemon.tools.discovery import (
    agent_callable,
    auto_discover_and_register,
    register_class_methods,
    register_instance_methods,
    register_module_functions,
)
from daemon.tools.executor import ToolExecutor
from daemon.tools.registry import FunctionDefinition, FunctionRegistry

__all__ = [
    "Agent",
    "AgentOptions",
    "AgentServices",
    "AllowAll",
    "AnthropicBaseProvider",
    "Chunk",
    "ClaudeProvider",
    "Database",
    "Effect",
    "FunctionCall",
    "FunctionDefinition",
    "FunctionRegistry",
    "Image",
    "LLMMessage",
    "LLMProvider",
    "LLMResponse",
    "LoopLimits",
    "Memory",
    "MiniMaxProvider",
    "OpenAIProvider",
    "OpenSourceProvider",
    "Policy",
    "ProviderError",
    "Reply",
    "Status",
    "ToolContext",
    "ToolExecutor",
    "ToolFailed",
    "Usage",
    "Verdict",
    "agent_callable",
    "auto_discover_and_register",
    "create_provider",
    "register_class_methods",
    "register_instance_methods",
    "register_module_functions",
]
__version__: str
