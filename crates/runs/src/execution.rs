//! The part of a run that writes: prepares its locations, handles pristine copies, and runs it.

use crate::{
    allowance::Allowance,
    copies,
    performance::{self, ReadyRun, RunContext, RunOutcome},
    planning::PlannedRun,
    pristine::CopyTask,
    record_writer::RunRecord,
    stage,
    survey::StorageSurvey,
};
use report::Refusal;
use world::{World, real::host_files::FolderLock};

/// Runs a planned run on the plain path. Early ends leave a report with what was measured.
pub async fn perform(
    world: &World,
    planned: &PlannedRun,
    survey: &StorageSurvey,
    context: RunContext<'_>,
) -> Result<RunOutcome, Refusal> {
    let PlannedRun { plan, needs, layout, outputs, control, .. } = planned;
    // First of all, so that a run that cannot be recorded leaves everything as it was.
    let record = performance::begin_record(world, plan, survey, &outputs.record, context.command)?;
    let mut allowance = Allowance::new(needs.writes_max);
    let run = ReadyRun { plan, layout, pools: None, survey, control, context };
    match make_ready(world, planned, &run, &record, &mut allowance).await {
        Ok(_held) => performance::run(world, &run, record, allowance).await,
        Err(refusal) => {
            record.abandon().await;
            Err(refusal)
        }
    }
}

/// Prepares the locations and handles pristine copies. The caller holds the returned locks during the run.
async fn make_ready(
    world: &World,
    planned: &PlannedRun,
    run: &ReadyRun<'_>,
    record: &RunRecord,
    allowance: &mut Allowance,
) -> Result<Vec<FolderLock>, Refusal> {
    let PlannedRun { plan, layout, action, copies, .. } = planned;
    let (survey, RunContext { stop, observer, .. }) = (run.survey, run.context);
    let held = stage::set(world, survey, plan, layout, planned.drives(), *action, *copies).await?;
    match copies {
        CopyTask::Leave => {}
        CopyTask::Forget => copies::forget(world, survey).await?,
        CopyTask::Restore => copies::restore(world, survey, observer, stop.cancellation()).await?,
        CopyTask::Keep => {
            performance::prepare(world, run, record, allowance).await?;
            copies::keep(world, survey, observer, stop.cancellation()).await?;
        }
    }
    Ok(held)
}
