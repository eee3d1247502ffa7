//! The web console of `spindle serve`: pages rendered on the server, for browsers
//! ([the decision](../../../docs/decisions/2026-11-29-console.md)).
//!
//! A page is a client of the API, in the process: it calls the API's own router with the browser's headers, and shows the
//! rows that it gets. Forms are changes of the API. All works without scripts; the one script brings parts of a page up to date.
//!
//! Reading order: [`pages`] with its table of paths, `visit` (a request of a browser, and its calls of the API), `page` (the
//! frame around each page, problems), `fields` (forms), `shown` (figures in words), `assets`; then the pages.
//!
//! Invariants:
//!
//! 1. A page sees and changes nothing but through the API, as the browser's own caller.
//! 2. Pages have no inline script and no inline style, and refer to no other server.
//! 3. What cannot be undone is done only with its name typed.

mod access;
mod advice;
mod api_reference;
mod assets;
mod dr_group;
mod dr_mode;
mod drive;
mod events;
mod fields;
mod group;
mod groups;
mod import;
mod initiator;
mod jobs;
mod line_chart;
mod login;
mod overview;
mod page;
mod peers;
mod performance;
mod pool_map;
mod pools;
mod presentation;
mod rehearsal;
mod replication;
mod reports;
mod schedules;
mod segments;
mod sessions;
mod sets;
mod shown;
mod site;
mod snapshot;
mod targets;
mod timeline;
mod visit;
mod volume;
mod volume_changes;
mod volumes;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post},
};
use control::web::page_setting::PageSetting;

/// Most bytes of a form.
const FORM_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a form with a site file: the API takes 16 MiB, of which a few signs become three in a form.
const SITE_FORM_BYTES_MAX: usize = 24 << 20;

/// The pages, and the API behind them.
pub fn pages(setting: PageSetting) -> Router {
    let site_forms = Router::new()
        .route("/site/plan", post(site::plan))
        .route("/site/apply", post(site::apply))
        .layer(DefaultBodyLimit::max(SITE_FORM_BYTES_MAX));
    let pages = Router::new()
        .route("/", get(overview::show))
        .route("/conditions/{condition}/acknowledge", post(overview::acknowledge))
        .route("/pools", get(pools::list))
        .route("/pools/{pool}", get(pools::show))
        .route("/pools/{pool}/performance", get(performance::of_pool))
        .route("/pools/{pool}/segments", get(segments::show))
        .route("/pools/{pool}/jobs/{job}", post(pools::change_job))
        .route("/pools/{pool}/imports", post(import::begin))
        .route("/pools/{pool}/drives", post(drive::add))
        .route("/pools/{pool}/drives/{drive}", get(drive::show))
        .route("/pools/{pool}/drives/{drive}/{what}", post(drive::change))
        .route("/volumes", get(volumes::list).post(volumes::create))
        .route("/volumes/{volume}", get(volume::show))
        .route("/volumes/{volume}/performance", get(performance::of_volume))
        .route("/volumes/{volume}/change/{what}", post(volume_changes::change))
        .route("/volumes/{volume}/clones", post(volume_changes::clone))
        .route("/volumes/{volume}/delete", post(volume_changes::delete))
        .route("/volumes/{volume}/move", post(volume_changes::relocate))
        .route("/volumes/{volume}/snapshots", post(volume_changes::take_snapshot))
        .route("/volumes/{volume}/snapshots/{snapshot}", get(snapshot::show))
        .route("/volumes/{volume}/snapshots/{snapshot}/delete", post(snapshot::delete))
        .route("/volumes/{volume}/snapshots/{snapshot}/rollback", post(snapshot::roll_back))
        .route("/volumes/{volume}/snapshots/{snapshot}/presentations", post(presentation::create))
        .route("/presentations/{presentation}", get(presentation::show))
        .route("/presentations/{presentation}/end", post(presentation::end))
        .route("/groups", get(groups::list).post(groups::create))
        .route("/groups/{group}", get(group::show))
        .route("/groups/{group}/delete", post(group::delete))
        .route("/groups/{group}/snapshots", post(group::take_snapshot))
        .route("/groups/{group}/snapshots/{snapshot}", get(group::show_snapshot))
        .route("/groups/{group}/snapshots/{snapshot}/{what}", post(group::change_snapshot))
        .route("/targets", get(targets::list).post(targets::create))
        .route("/targets/{target}", get(targets::show))
        .route("/targets/{target}/units", post(targets::add_unit))
        .route("/targets/{target}/delete", post(targets::delete))
        .route("/initiators", get(targets::list).post(initiator::create))
        .route("/initiators/{initiator}", get(initiator::show))
        .route("/initiators/{initiator}/{what}", post(initiator::change))
        .route("/initiators/{initiator}/delete", post(initiator::delete))
        .route("/exports", get(targets::list).post(targets::create_export))
        .route("/exports/{export}", get(targets::show_export))
        .route("/exports/{export}/delete", post(targets::delete_export))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{session}", get(sessions::show))
        .route("/sessions/{session}/end", post(sessions::end))
        .route("/schedules", get(schedules::list).post(schedules::create))
        .route("/schedules/{schedule}", get(schedules::show))
        .route("/schedules/{schedule}/delete", post(schedules::delete))
        .route("/sets", get(sets::list))
        .route("/sets/{set}", get(sets::show))
        .route("/sets/{set}/backups", post(sets::back_up))
        .route("/sets/{set}/backups/{number}", get(sets::show_backup))
        .route("/sets/{set}/backups/{number}/hold", post(sets::hold))
        .route("/sets/{set}/backups/{number}/delete", post(sets::delete))
        .route("/replication", get(replication::show).post(replication::create))
        .route("/replication/{group}", get(dr_group::show))
        .route("/replication/{group}/{what}", post(dr_group::change))
        .route("/replication/{group}/rehearsals", post(rehearsal::begin))
        .route("/replication/{group}/rehearsals/{rehearsal}/end", post(rehearsal::end))
        .route("/replication/{group}/forks/{fork}/drop", post(dr_group::drop_fork))
        .route("/peers", get(peers::list).post(peers::pair))
        .route("/peers/{site}", get(peers::show))
        .route("/peers/{site}/unpair", post(peers::unpair))
        .route("/pairing-tokens", post(peers::make_token))
        .route("/jobs", get(jobs::list))
        .route("/events", get(events::list))
        .route("/site", get(site::show))
        .route("/advice", get(advice::show))
        .route("/reports", get(reports::list))
        .route("/reports/{report}", get(reports::show))
        .route("/reports/{report}/whole", get(reports::show_whole))
        .route("/reports/{report}/delete", post(reports::delete))
        .route("/access", get(access::list).post(access::create))
        .route("/access/{token}", get(access::show))
        .route("/access/{token}/delete", post(access::delete))
        .route("/api", get(api_reference::show))
        .route("/api/{schema}", get(api_reference::show_schema))
        .route("/login", get(login::show).post(login::begin))
        .route("/logout", post(login::end))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .merge(site_forms)
        .layer(middleware::from_fn_with_state(setting.clone(), page::finish));
    pages.merge(assets::router()).fallback(page::elsewhere).with_state(setting)
}
