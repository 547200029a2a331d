"""Every operation of the store in one namespace: `await store.run(operations.submit_jobs, jobs)`."""

from comfyui_agent.store.assets import *
from comfyui_agent.store.batch_endings import *
from comfyui_agent.store.batches import *
from comfyui_agent.store.bursts import *
from comfyui_agent.store.event_log import *
from comfyui_agent.store.grids import *
from comfyui_agent.store.idempotency import *
from comfyui_agent.store.job_commands import *
from comfyui_agent.store.job_files import *
from comfyui_agent.store.job_orders import *
from comfyui_agent.store.job_pages import *
from comfyui_agent.store.job_queries import *
from comfyui_agent.store.leases import *
from comfyui_agent.store.liveness import *
from comfyui_agent.store.needs import *
from comfyui_agent.store.notifications import *
from comfyui_agent.store.outcomes import *
from comfyui_agent.store.overview import *
from comfyui_agent.store.posted_prompts import *
from comfyui_agent.store.prompts import *
from comfyui_agent.store.retention import *
from comfyui_agent.store.reuse import *
from comfyui_agent.store.server_states import *
from comfyui_agent.store.takes import *
from comfyui_agent.store.tokens import *
from comfyui_agent.store.webhooks import *
