//! The arguments of `spindle prove` as the settings of a run.

use crate::arguments::ProveArguments;
use runs::request::RunRequest;
use std::sync::Arc;

/// The settings that `arguments` give.
pub fn request_of(arguments: &ProveArguments) -> RunRequest {
    let a = arguments.clone();
    RunRequest {
        paths: a.paths,
        logs: a.logs,
        remotes: Some(Arc::new(a.remote)),
        setup: a.setup,
        site: a.site,
        groups: a.groups,
        databases: a.databases,
        threads: a.threads,
        mailboxes: a.mailboxes,
        iops: a.iops,
        max: a.max,
        probe: a.probe,
        duration: a.duration,
        judge: a.judge,
        size: a.size,
        cache: a.cache,
        profile: a.profile,
        limits: a.limits,
        set: a.set,
        note: a.note,
        report: a.report,
        sweep: a.sweep,
        pool: a.pool,
        protect: a.protect,
        control: a.control,
        keeps_logs: a.keep_logs,
        layout: a.layout,
        volumes: None,
        storage_cache: None,
        seed: a.seed,
        attach: a.attach,
        fresh: a.fresh,
        keep_pristine: a.keep_pristine,
        restore: a.restore,
        allow_writes: a.allow_writes,
        unlock_signature: a.unlock_signature,
    }
}
