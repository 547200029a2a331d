"""Every operation of the store by name, each in its own transaction: `await store.run(operations.submit_jobs, jobs)`.

In the modules below, `@query` reads, `@transition` writes what an agent records, `@command` writes what somebody asked
for and wakes the agents.
"""

from comfyui_agent.store.batches import (
    book_pages as book_pages,
)
from comfyui_agent.store.batches import (
    cancel_batch as cancel_batch,
)
from comfyui_agent.store.batches import (
    claim_grid as claim_grid,
)
from comfyui_agent.store.batches import (
    create_batch as create_batch,
)
from comfyui_agent.store.batches import (
    discard_unfinished as discard_unfinished,
)
from comfyui_agent.store.batches import (
    dismiss_batch as dismiss_batch,
)
from comfyui_agent.store.batches import (
    fill_batch as fill_batch,
)
from comfyui_agent.store.batches import (
    find_batch as find_batch,
)
from comfyui_agent.store.batches import (
    free_turns as free_turns,
)
from comfyui_agent.store.batches import (
    group_jobs as group_jobs,
)
from comfyui_agent.store.batches import (
    is_batch_idle as is_batch_idle,
)
from comfyui_agent.store.batches import (
    members_after as members_after,
)
from comfyui_agent.store.batches import (
    newest_batches as newest_batches,
)
from comfyui_agent.store.batches import (
    note_grid as note_grid,
)
from comfyui_agent.store.batches import (
    open_batch as open_batch,
)
from comfyui_agent.store.batches import (
    past_durations as past_durations,
)
from comfyui_agent.store.batches import (
    pause_batch as pause_batch,
)
from comfyui_agent.store.batches import (
    release_grids as release_grids,
)
from comfyui_agent.store.batches import (
    resubmit_jobs as resubmit_jobs,
)
from comfyui_agent.store.batches import (
    resume_batch as resume_batch,
)
from comfyui_agent.store.batches import (
    retry_batch as retry_batch,
)
from comfyui_agent.store.batches import (
    settle_grid as settle_grid,
)
from comfyui_agent.store.batches import (
    tick_batches as tick_batches,
)
from comfyui_agent.store.bursts import (
    begin_burst as begin_burst,
)
from comfyui_agent.store.bursts import (
    burst_items as burst_items,
)
from comfyui_agent.store.bursts import (
    confirm_written as confirm_written,
)
from comfyui_agent.store.bursts import (
    end_burst as end_burst,
)
from comfyui_agent.store.bursts import (
    forget_items as forget_items,
)
from comfyui_agent.store.bursts import (
    note_written as note_written,
)
from comfyui_agent.store.bursts import (
    pick_items as pick_items,
)
from comfyui_agent.store.event_log import (
    add_event as add_event,
)
from comfyui_agent.store.event_log import (
    alerts as alerts,
)
from comfyui_agent.store.event_log import (
    audit_trail as audit_trail,
)
from comfyui_agent.store.event_log import (
    events_after as events_after,
)
from comfyui_agent.store.event_log import (
    failures_since as failures_since,
)
from comfyui_agent.store.event_log import (
    newest_event as newest_event,
)
from comfyui_agent.store.event_log import (
    prune_events as prune_events,
)
from comfyui_agent.store.gauges import (
    read_gauges as read_gauges,
)
from comfyui_agent.store.grid_files import (
    claim_grid_files as claim_grid_files,
)
from comfyui_agent.store.grid_files import (
    keep_grid_files as keep_grid_files,
)
from comfyui_agent.store.idempotency import (
    begin_request as begin_request,
)
from comfyui_agent.store.idempotency import (
    drop_request as drop_request,
)
from comfyui_agent.store.idempotency import (
    finish_request as finish_request,
)
from comfyui_agent.store.job_commands import (
    cancel_jobs as cancel_jobs,
)
from comfyui_agent.store.job_commands import (
    dismiss_jobs as dismiss_jobs,
)
from comfyui_agent.store.job_commands import (
    remove_jobs as remove_jobs,
)
from comfyui_agent.store.job_commands import (
    retry_jobs as retry_jobs,
)
from comfyui_agent.store.job_commands import (
    set_priority as set_priority,
)
from comfyui_agent.store.job_commands import (
    submit_jobs as submit_jobs,
)
from comfyui_agent.store.job_files import (
    cancel_deleted as cancel_deleted,
)
from comfyui_agent.store.job_files import (
    file_jobs as file_jobs,
)
from comfyui_agent.store.job_files import (
    file_of_job as file_of_job,
)
from comfyui_agent.store.job_files import (
    finished_files as finished_files,
)
from comfyui_agent.store.job_files import (
    holder_of_path as holder_of_path,
)
from comfyui_agent.store.job_files import (
    note_file_changed as note_file_changed,
)
from comfyui_agent.store.job_files import (
    note_file_moved as note_file_moved,
)
from comfyui_agent.store.job_files import (
    note_file_repeated as note_file_repeated,
)
from comfyui_agent.store.job_files import (
    pending_sources as pending_sources,
)
from comfyui_agent.store.job_files import (
    reject_file as reject_file,
)
from comfyui_agent.store.job_files import (
    rejections as rejections,
)
from comfyui_agent.store.job_pages import (
    batch_page as batch_page,
)
from comfyui_agent.store.job_pages import (
    job_page as job_page,
)
from comfyui_agent.store.job_queries import (
    count_jobs as count_jobs,
)
from comfyui_agent.store.job_queries import (
    find_job as find_job,
)
from comfyui_agent.store.job_queries import (
    find_job_by_id as find_job_by_id,
)
from comfyui_agent.store.job_queries import (
    find_job_by_name as find_job_by_name,
)
from comfyui_agent.store.job_queries import (
    find_template as find_template,
)
from comfyui_agent.store.job_queries import (
    is_queue_idle as is_queue_idle,
)
from comfyui_agent.store.job_queries import (
    list_attempts as list_attempts,
)
from comfyui_agent.store.job_queries import (
    list_jobs as list_jobs,
)
from comfyui_agent.store.job_queries import (
    open_jobs_of as open_jobs_of,
)
from comfyui_agent.store.job_queries import (
    seconds_until_next as seconds_until_next,
)
from comfyui_agent.store.leases import (
    held_leases as held_leases,
)
from comfyui_agent.store.leases import (
    lease_jobs as lease_jobs,
)
from comfyui_agent.store.leases import (
    note_running as note_running,
)
from comfyui_agent.store.leases import (
    release_jobs as release_jobs,
)
from comfyui_agent.store.leases import (
    renew_leases as renew_leases,
)
from comfyui_agent.store.members import (
    batch_members as batch_members,
)
from comfyui_agent.store.members import (
    members_at as members_at,
)
from comfyui_agent.store.members import (
    members_without_place as members_without_place,
)
from comfyui_agent.store.names import (
    index_names as index_names,
)
from comfyui_agent.store.outcomes import (
    claim_files as claim_files,
)
from comfyui_agent.store.outcomes import (
    complete_job as complete_job,
)
from comfyui_agent.store.outcomes import (
    fail_job as fail_job,
)
from comfyui_agent.store.outcomes import (
    kept_pictures as kept_pictures,
)
from comfyui_agent.store.outcomes import (
    owned_files as owned_files,
)
from comfyui_agent.store.outcomes import (
    recorded_files as recorded_files,
)
from comfyui_agent.store.outcomes import (
    refuse_job as refuse_job,
)
from comfyui_agent.store.outcomes import (
    requeue_job as requeue_job,
)
from comfyui_agent.store.outcomes import (
    return_unsent as return_unsent,
)
from comfyui_agent.store.outcomes import (
    wait_for_server as wait_for_server,
)
from comfyui_agent.store.outcomes import (
    with_unowned as with_unowned,
)
from comfyui_agent.store.overview import (
    read_overview as read_overview,
)
from comfyui_agent.store.recovery import (
    adopt_attempt as adopt_attempt,
)
from comfyui_agent.store.recovery import (
    open_attempts as open_attempts,
)
from comfyui_agent.store.recovery import (
    owned_prompts as owned_prompts,
)
from comfyui_agent.store.recovery import (
    put_back_orphans as put_back_orphans,
)
from comfyui_agent.store.recovery import (
    put_back_unattended as put_back_unattended,
)
from comfyui_agent.store.recovery import (
    recount as recount,
)
from comfyui_agent.store.recovery import (
    withdraw_attempt as withdraw_attempt,
)
from comfyui_agent.store.server_states import (
    drain_server as drain_server,
)
from comfyui_agent.store.server_states import (
    finish_drain as finish_drain,
)
from comfyui_agent.store.server_states import (
    forget_stuck as forget_stuck,
)
from comfyui_agent.store.server_states import (
    halted_servers as halted_servers,
)
from comfyui_agent.store.server_states import (
    is_blocked as is_blocked,
)
from comfyui_agent.store.server_states import (
    lost_servers as lost_servers,
)
from comfyui_agent.store.server_states import (
    note_stuck as note_stuck,
)
from comfyui_agent.store.server_states import (
    pause_server as pause_server,
)
from comfyui_agent.store.server_states import (
    resume_server as resume_server,
)
from comfyui_agent.store.server_states import (
    stuck_prompts as stuck_prompts,
)
from comfyui_agent.store.tokens import (
    begin_session as begin_session,
)
from comfyui_agent.store.tokens import (
    create_token as create_token,
)
from comfyui_agent.store.tokens import (
    end_session as end_session,
)
from comfyui_agent.store.tokens import (
    enrol_user as enrol_user,
)
from comfyui_agent.store.tokens import (
    list_tokens as list_tokens,
)
from comfyui_agent.store.tokens import (
    note_uses as note_uses,
)
from comfyui_agent.store.tokens import (
    open_access as open_access,
)
from comfyui_agent.store.tokens import (
    read_access as read_access,
)
from comfyui_agent.store.tokens import (
    revoke_token as revoke_token,
)
from comfyui_agent.store.tokens import (
    token_name as token_name,
)
