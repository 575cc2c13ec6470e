from .client import AsyncClient as AsyncClient, Client as Client
from .run import Running as Running, running as running, serve as serve
from .settings import Settings as Settings
