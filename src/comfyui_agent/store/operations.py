"""Every operation of the store by name, each in its own transaction: `await store.run(operations.submit_jobs, jobs)`.

In the modules below, `@query` reads, `@transition` writes what an agent records, `@command` writes what somebody asked
for and wakes the agents.
"""

from comfyui_agent.store.batch_endings import (
    cancel_batch as cancel_batch,
    end_members as end_members,
    tick_batches as tick_batches,
)
from comfyui_agent.store.batches import (
    book_pages as book_pages,
    claim_grid as claim_grid,
    create_batch as create_batch,
    discard_unfinished as discard_unfinished,
    dismiss_batch as dismiss_batch,
    fill_batch as fill_batch,
    find_batch as find_batch,
    free_turns as free_turns,
    group_jobs as group_jobs,
    is_batch_idle as is_batch_idle,
    members_after as members_after,
    newest_batches as newest_batches,
    note_grid as note_grid,
    open_batch as open_batch,
    past_durations as past_durations,
    pause_batch as pause_batch,
    release_grids as release_grids,
    resubmit_jobs as resubmit_jobs,
    resume_batch as resume_batch,
    retry_batch as retry_batch,
    settle_grid as settle_grid,
)
from comfyui_agent.store.bursts import (
    begin_burst as begin_burst,
    burst_items as burst_items,
    confirm_written as confirm_written,
    end_burst as end_burst,
    forget_items as forget_items,
    note_written as note_written,
    pick_items as pick_items,
)
from comfyui_agent.store.event_log import (
    add_event as add_event,
    alerts as alerts,
    audit_trail as audit_trail,
    events_after as events_after,
    failures_since as failures_since,
    newest_event as newest_event,
    prune_events as prune_events,
)
from comfyui_agent.store.gauges import (
    read_gauges as read_gauges,
)
from comfyui_agent.store.grid_files import (
    claim_grid_files as claim_grid_files,
    keep_grid_files as keep_grid_files,
)
from comfyui_agent.store.idempotency import (
    begin_request as begin_request,
    drop_request as drop_request,
    finish_request as finish_request,
)
from comfyui_agent.store.job_commands import (
    cancel_jobs as cancel_jobs,
    dismiss_jobs as dismiss_jobs,
    remove_jobs as remove_jobs,
    retry_jobs as retry_jobs,
    set_priority as set_priority,
    submit_jobs as submit_jobs,
)
from comfyui_agent.store.job_files import (
    cancel_deleted as cancel_deleted,
    file_jobs as file_jobs,
    file_of_job as file_of_job,
    finished_files as finished_files,
    holder_of_path as holder_of_path,
    note_file_changed as note_file_changed,
    note_file_moved as note_file_moved,
    note_file_repeated as note_file_repeated,
    pending_sources as pending_sources,
    reject_file as reject_file,
    rejections as rejections,
)
from comfyui_agent.store.job_pages import (
    batch_page as batch_page,
    job_page as job_page,
)
from comfyui_agent.store.job_queries import (
    count_jobs as count_jobs,
    find_job as find_job,
    find_job_by_id as find_job_by_id,
    find_job_by_name as find_job_by_name,
    find_template as find_template,
    is_queue_idle as is_queue_idle,
    list_attempts as list_attempts,
    list_jobs as list_jobs,
    open_jobs_of as open_jobs_of,
    seconds_until_next as seconds_until_next,
)
from comfyui_agent.store.leases import (
    held_leases as held_leases,
    lease_jobs as lease_jobs,
    note_running as note_running,
    release_jobs as release_jobs,
    renew_leases as renew_leases,
)
from comfyui_agent.store.liveness import (
    beat_agent as beat_agent,
    living_agents as living_agents,
    register_agent as register_agent,
    remove_agent as remove_agent,
)
from comfyui_agent.store.members import (
    batch_members as batch_members,
    members_at as members_at,
    members_without_place as members_without_place,
)
from comfyui_agent.store.names import (
    index_names as index_names,
)
from comfyui_agent.store.outcomes import (
    claim_files as claim_files,
    complete_job as complete_job,
    fail_job as fail_job,
    kept_pictures as kept_pictures,
    owned_files as owned_files,
    recorded_files as recorded_files,
    refuse_job as refuse_job,
    requeue_job as requeue_job,
    return_unsent as return_unsent,
    wait_for_server as wait_for_server,
    with_unowned as with_unowned,
)
from comfyui_agent.store.overview import (
    read_overview as read_overview,
)
from comfyui_agent.store.recovery import (
    adopt_attempt as adopt_attempt,
    open_attempts as open_attempts,
    owned_prompts as owned_prompts,
    put_back_orphans as put_back_orphans,
    put_back_unattended as put_back_unattended,
    recount as recount,
    withdraw_attempt as withdraw_attempt,
)
from comfyui_agent.store.server_states import (
    drain_server as drain_server,
    finish_drain as finish_drain,
    forget_stuck as forget_stuck,
    halted_servers as halted_servers,
    is_blocked as is_blocked,
    lost_servers as lost_servers,
    note_stuck as note_stuck,
    pause_server as pause_server,
    resume_server as resume_server,
    stuck_prompts as stuck_prompts,
)
from comfyui_agent.store.tokens import (
    begin_session as begin_session,
    create_token as create_token,
    end_session as end_session,
    enrol_user as enrol_user,
    list_tokens as list_tokens,
    note_uses as note_uses,
    open_access as open_access,
    read_access as read_access,
    revoke_token as revoke_token,
    token_name as token_name,
)
