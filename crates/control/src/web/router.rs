//! All paths of the API, and their description.

use super::{
    ApiProblem, ApiState, audit, browser_sessions,
    changing::{self, BODY_BYTES_MAX, KEY_BYTES_MAX, SITE_BYTES_MAX},
    client::KEEPS_SETTINGS,
    conditions, cuts, differences, dr_forks, dr_groups, dr_line_tests, dr_mode_changes, dr_rehearsals,
    dr_sites, dr_suspensions, dr_verifications, drive_warnings, drives, events, exports, group_changes,
    groups, health, history, imports, initiators, jobs, metrics, notifiers, points, pools, power,
    presentations, reports, schedules, segment_map, sessions, set_results, sets, site, site_advice,
    snapshots, space, targets, tokens, transfers, uses, volumes,
};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::{Method, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use report::Refusal;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        ObjectBuilder, Required, Type,
        path::{ParameterBuilder, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

/// The description as `GET /v1/openapi.json` has it.
#[derive(OpenApi)]
#[openapi(
    info(title = "Spindle", version = "1", description = "Pools, drives, volumes and snapshots, the site, tokens and the audit of a Spindle server. \
        Sizes are bytes, times are UTC. Problems are application/problem+json (RFC 9457)."),
    components(responses(ApiProblem)),
    modifiers(&TokenScheme),
    security(("token" = []))
)]
struct ApiDescription;

/// Paths whose answers are not kept to be repeated, or that change nothing.
const WITHOUT_KEYS: [&str; 4] =
    [super::tokens::PATH, super::dr_sites::TOKENS_PATH, super::site::PLAN_PATH, "/v1/session"];

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Describes the header `Idempotency-Key`, which every change takes but those of [`WITHOUT_KEYS`].
fn describe_keys(description: &mut utoipa::openapi::OpenApi) {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .description(Some(
            "Random, a new one for each change: repeated with the same key, it succeeds once, and its answer is repeated.",
        ))
        .required(Required::False)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(KEY_BYTES_MAX))))
        .build();
    let paths = description.paths.paths.iter_mut().filter(|(path, _)| !WITHOUT_KEYS.contains(&path.as_str()));
    for (_, item) in paths {
        let changes = [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for change in changes.into_iter().flatten() {
            change.parameters.get_or_insert_default().push(key.clone().into());
        }
    }
}

/// The handlers with their descriptions.
fn described(api: Option<&ApiState>) -> (Router<ApiState>, utoipa::openapi::OpenApi) {
    let open = OpenApiRouter::with_openapi(ApiDescription::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(browser_sessions::begin, browser_sessions::end));
    let mut guarded = OpenApiRouter::new()
        .routes(routes!(pools::list))
        .routes(routes!(pools::show, pools::patch))
        .routes(routes!(pools::status))
        .routes(routes!(pools::room))
        .routes(routes!(segment_map::show))
        .routes(routes!(drives::list, drives::add))
        .routes(routes!(drives::show, drives::retire))
        .routes(routes!(drives::keep))
        .routes(routes!(drives::forget))
        .routes(routes!(drives::readmit))
        .routes(routes!(drives::grow))
        .routes(routes!(drives::replace))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show, transfers::cancel))
        .routes(routes!(jobs::begin_scrub, jobs::cancel_scrub))
        .routes(routes!(jobs::begin_levelling, jobs::cancel_levelling))
        .routes(routes!(volumes::list))
        .routes(routes!(volumes::create))
        .routes(routes!(volumes::show, volumes::patch, volumes::delete))
        .routes(routes!(volumes::clone))
        .routes(routes!(imports::import))
        .routes(routes!(transfers::copy))
        .routes(routes!(transfers::refresh))
        .routes(routes!(transfers::relocate))
        .routes(routes!(volumes::roll_back))
        .routes(routes!(volumes::fill, volumes::cancel_filling))
        .routes(routes!(volumes::readmit))
        .routes(routes!(uses::show))
        .routes(routes!(space::show))
        .routes(routes!(snapshots::list, snapshots::create))
        .routes(routes!(snapshots::create_of_volumes))
        .routes(routes!(snapshots::delete))
        .routes(routes!(differences::show))
        .routes(routes!(points::list))
        .routes(routes!(presentations::create))
        .routes(routes!(presentations::list))
        .routes(routes!(presentations::show, presentations::end))
        .routes(routes!(cuts::create))
        .routes(routes!(cuts::settle_pools))
        .routes(routes!(groups::list, groups::create))
        .routes(routes!(groups::show, groups::delete))
        .routes(routes!(group_changes::take_snapshot))
        .routes(routes!(group_changes::delete_snapshot))
        .routes(routes!(group_changes::clone))
        .routes(routes!(group_changes::roll_back))
        .routes(routes!(site::show))
        .routes(routes!(site_advice::show))
        .routes(routes!(site::plan))
        .routes(routes!(site::apply))
        .routes(routes!(power::show, power::tell))
        .routes(routes!(drive_warnings::warn, drive_warnings::withdraw))
        .routes(routes!(targets::list, targets::create))
        .routes(routes!(targets::show, targets::patch, targets::delete))
        .routes(routes!(targets::add_unit))
        .routes(routes!(targets::set_unit, targets::remove_unit))
        .routes(routes!(initiators::list, initiators::create))
        .routes(routes!(initiators::show, initiators::patch, initiators::delete))
        .routes(routes!(exports::list, exports::create))
        .routes(routes!(exports::show, exports::delete))
        .routes(routes!(schedules::list, schedules::create))
        .routes(routes!(schedules::show, schedules::patch, schedules::delete))
        .routes(routes!(sets::list))
        .routes(routes!(sets::show))
        .routes(routes!(sets::back_up))
        .routes(routes!(sets::delete))
        .routes(routes!(sets::hold, sets::release))
        .routes(routes!(sets::lock))
        .routes(routes!(set_results::verify))
        .routes(routes!(set_results::note_restore))
        .routes(routes!(set_results::note_drill))
        .routes(routes!(set_results::note_copy))
        .routes(routes!(set_results::catalogue))
        .routes(routes!(set_results::rebuild))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show, sessions::end))
        .routes(routes!(dr_sites::list, dr_sites::pair))
        .routes(routes!(dr_sites::unpair))
        .routes(routes!(dr_line_tests::make))
        .routes(routes!(dr_sites::make_token))
        .routes(routes!(dr_groups::list, dr_groups::create))
        .routes(routes!(dr_groups::show, dr_groups::delete, dr_mode_changes::change_mode))
        .routes(routes!(dr_groups::fail_over))
        .routes(routes!(dr_groups::give_way))
        .routes(routes!(dr_groups::go_on_alone))
        .routes(routes!(dr_suspensions::suspend))
        .routes(routes!(dr_verifications::begin, dr_verifications::show, dr_verifications::give_up))
        .routes(routes!(dr_forks::list))
        .routes(routes!(dr_forks::drop_fork))
        .routes(routes!(dr_suspensions::resume))
        .routes(routes!(dr_rehearsals::list, dr_rehearsals::begin))
        .routes(routes!(dr_rehearsals::end))
        .routes(routes!(metrics::show))
        .routes(routes!(history::series))
        .routes(routes!(history::show))
        .routes(routes!(reports::list))
        .routes(routes!(reports::show, reports::keep, reports::delete))
        .routes(routes!(events::list))
        .routes(routes!(browser_sessions::show))
        .routes(routes!(conditions::list))
        .routes(routes!(conditions::acknowledge))
        .routes(routes!(notifiers::list))
        .routes(routes!(notifiers::test))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::delete))
        .routes(routes!(audit::list));
    if let Some(api) = api {
        guarded = guarded.route_layer(middleware::from_fn_with_state(api.clone(), changing::run));
    }
    let (router, mut description) = open.merge(guarded).split_for_parts();
    describe_keys(&mut description);
    (router, description)
}

/// The whole API.
pub(super) fn router(api: ApiState) -> Router {
    let (router, description) = described(Some(&api));
    let text = description.to_json().expect("a description can be written");
    let json = [(header::CONTENT_TYPE, "application/json")];
    router
        .route("/v1/openapi.json", axum::routing::get(async move || (json, text)))
        .fallback(nothing_there)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(SITE_BYTES_MAX))
        .layer(middleware::from_fn(in_words))
        .with_state(api)
}

/// The description of the API, OpenAPI 3.1, as JSON with line breaks.
pub fn openapi_json() -> String {
    described(None).1.to_pretty_json().expect("a description can be written")
}

async fn nothing_there(uri: Uri) -> ApiProblem {
    let mut problem = ApiProblem::not_found(format!("there is nothing at {}", uri.path()));
    problem.next = Some("GET /v1/openapi.json lists all paths".to_owned());
    problem
}

async fn wrong_method(method: Method, uri: Uri) -> ApiProblem {
    let refusal =
        Refusal::new(format!("{} takes no {method}", uri.path()), "GET /v1/openapi.json lists all methods");
    ApiProblem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", &refusal)
}

/// The library's own refusals of bodies and queries, which are plain text, as problems; and settings in problems by the names
/// of their fields, unless the caller has its own names for them.
async fn in_words(request: Request, next: Next) -> Response {
    let keeps_settings = request.headers().contains_key(KEEPS_SETTINGS);
    let response = next.run(request).await;
    let status = response.status();
    let is_plain = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/plain")));
    if status.is_client_error() && is_plain {
        let body = axum::body::to_bytes(response.into_body(), BODY_BYTES_MAX).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body).into_owned();
        let refusal = Refusal::new(if text.trim().is_empty() { "bad request".to_owned() } else { text }, "");
        return ApiProblem::new(status, "bad-request", &refusal).into_response();
    }
    match response.extensions().get::<ApiProblem>() {
        Some(problem) if !keeps_settings && problem.has_settings() => {
            let named = problem.clone().with_fields();
            // Its headers stay: an ETag, or when to try again.
            let (parts, _) = response.into_parts();
            let (_, body) = named.into_response().into_parts();
            let mut response = Response::from_parts(parts, body);
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response
        }
        _ => response,
    }
}
