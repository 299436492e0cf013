"""What a model may call: definitions with a schema, one executor, five ways to find functions.

Not here: the functions themselves (tools/), and whether a call is allowed (policy/).
"""

from daemon.functions.discovery import (
    agent_callable,
    auto_discover_and_register,
    register_class_methods,
    register_instance_methods,
    register_module_functions,
)
from daemon.functions.executor import ToolExecutor
from daemon.functions.registry import FunctionDefinition, FunctionRegistry

__all__ = [
    "FunctionDefinition",
    "FunctionRegistry",
    "ToolExecutor",
    "agent_callable",
    "auto_discover_and_register",
    "register_class_methods",
    "register_instance_methods",
    "register_module_functions",
]
