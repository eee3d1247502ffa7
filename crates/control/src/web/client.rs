//! A client of the API, over any network, and the bodies that it sends.

pub use super::{
    audit::AuditRow,
    browser_sessions::{CallerRow, LoginBody},
    conditions::ConditionRow,
    cuts::{SettlementBody, TakenCut},
    dr_forks::{DrForkList, DrForkRow},
    dr_groups::{FailoverAnswer, FailoverBody, NewDrGroupBody},
    dr_line_tests::{LinePathFigures, LinePathRow, LineRate, LineRoundTrip, LineTestRow, NewLineTestBody},
    dr_mode_changes::DrGroupPatch,
    dr_rehearsals::{NewRehearsalBody, PastRehearsalRow, RehearsalCloneRow, RehearsalRow},
    dr_rows::{DamagedDrGroupRow, DrConnection, DrGroupList, DrGroupRow, DrMergeRow, DrSiteRow, DrSites},
    dr_sites::{MadePairingToken, NewPairingBody, NewPairingTokenBody},
    dr_suspensions::{DrMergePlan, DrMergeStart, DrSuspensionReason, DrSuspensionRow},
    dr_verifications::{DrDifferentRange, DrVerificationRow, DrVerifyOutcome},
    dr_withheld::DrWithheldRow,
    drive_warnings::DriveWarningBody,
    events::{EventPage, EventRow, EventSeverity},
    exports::{ExportRow, NewExportBody},
    group_changes::{GroupRollbackBody, NewGroupClonesBody, NewGroupSnapshotBody},
    groups::NewGroupBody,
    imports::ImportBody,
    initiators::{InitiatorPatchBody, InitiatorRow, NewInitiatorBody},
    notifiers::{NotifierRow, NotifierTest},
    points::{BackupPointList, BackupPointRow},
    power::PowerBody,
    presentations::{
        NewPresentationBody, PresentationEndRow, PresentationList, PresentationRow, PresentationState,
    },
    reports::{ReportList, ReportOutcome, ReportRow, ReportVerdictRow},
    row_changes::{RowChangeOutcome, RowChangeResult, SiteFileDifference},
    schedules::{NewScheduleBody, SchedulePatchBody, ScheduleProgressRow, ScheduleRow, ScheduledVolumeRow},
    segment_map::{SegmentCell, SegmentContents, SegmentDrive, SegmentMap},
    sessions::{SessionKind, SessionRow, SessionUnit},
    set_results::{
        BackupCopyBody, DrillBody, RebuiltRow, RestoreBody, VerificationBody, VerificationResultName,
    },
    set_rows::{
        CopyDueRow, SetBackupRow, SetDrillRow, SetKeeperName, SetPointRow, SetReplicationRow, SetRow,
        SetVaultRow, SetVerificationRow, SetVolumeRow,
    },
    sets::{BackupLockBody, NewBackupBody},
    site::SiteBody,
    site_advice::{FindingRow, SiteAdvice, SkippedRule},
    snapshots::{NewSnapshotBody, NewSnapshotsBody},
    targets::{
        NewTargetBody, NewUnitBody, TargetPatchBody, TargetRow, TargetUser, UnitCache, UnitPatchBody, UnitRow,
    },
    transfers::{MoveBody, NewCopyBody, RefreshBody},
    uses::VolumeUses,
    volumes::{NewCloneBody, NewVolumeBody, ReadmissionBody, ReadmissionRow, RollbackBody, VolumePatch},
};
pub use crate::journal::rehearsals::RehearsalOutcome;
pub use hyper::Method;

use super::ApiProblem;
use axum::body::Body;
use http_body_util::BodyExt;
use hyper::{Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use report::Refusal;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Write, future::pending, rc::Rc};
use tls::ClientTls;
use world::{Address, Network, Stream, World, with_deadline};

/// Header of callers that have their own names for the settings in problems, which stay ⟨name⟩ then.
pub const KEEPS_SETTINGS: &str = "spindle-keeps-settings";

/// Calls the API of one server.
pub struct ApiClient {
    network: Rc<dyn Network>,
    address: Address,
    /// None on the Unix socket of a server of this user.
    token: Option<String>,
    /// With the clock that certificates are judged by.
    tls: Option<(ClientTls, World)>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiReply {
    pub status: u16,
    pub body: String,
    /// Value of the header spindle-left-out.
    pub left_out: Option<String>,
}

impl ApiClient {
    pub fn new(network: Rc<dyn Network>, address: Address, token: Option<String>) -> Self {
        Self { network, address, token, tls: None }
    }

    /// The same over TLS.
    pub fn encrypted(self, tls: ClientTls, world: &World) -> Self {
        Self { tls: Some((tls, world.clone())), ..self }
    }

    /// Sends a request, with a body as JSON if there is one, and headers.
    ///
    /// # Errors
    ///
    /// The server did not answer. A problem is an answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> Result<ApiReply, Refusal> {
        let (mut sender, connection, request) = self.connect((method, path), body, headers).await?;
        let failed = |error: hyper::Error| self.failed(&error);
        let exchange = async {
            let response = sender.send_request(request).await?;
            let (parts, body) = response.into_parts();
            let left_out = parts.headers.get("spindle-left-out").and_then(|value| value.to_str().ok());
            let left_out = left_out.map(str::to_owned);
            let body = body.collect().await?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            Ok::<_, hyper::Error>(ApiReply { status: parts.status.as_u16(), body, left_out })
        };
        // The exchange knows of the connection's end.
        let connection = async {
            let _ = connection.await;
            pending::<()>().await;
        };
        let reply = with_deadline(connection, exchange).await.expect("the connection does not end first");
        reply.map_err(failed)
    }

    /// Gets a resource of lines, and passes each on as it comes, without its end.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it did not answer, or broke off; or that of `take`.
    pub async fn get_lines(
        &self,
        path: &str,
        mut take: impl FnMut(&str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let (mut sender, connection, request) = self.connect((Method::GET, path), None, &[]).await?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| self.failed(&error))?;
            let (parts, mut body) = response.into_parts();
            let status = parts.status.as_u16();
            if !parts.status.is_success() {
                let body = body.collect().await.map_err(|error| self.failed(&error))?.to_bytes();
                let body = String::from_utf8_lossy(&body).into_owned();
                return ApiReply { status, body, left_out: None }.checked().map(|_| ());
            }
            let mut begun = Vec::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|error| self.failed(&error))?.into_data() else { continue };
                begun.extend_from_slice(&data);
                let Some(end) = begun.iter().rposition(|&byte| byte == b'\n') else { continue };
                let rest = begun.split_off(end + 1);
                String::from_utf8_lossy(&begun).lines().try_for_each(&mut take)?;
                begun = rest;
            }
            Ok(())
        };
        // The exchange knows of the connection's end.
        let connection = async {
            let _ = connection.await;
            pending::<()>().await;
        };
        with_deadline(connection, exchange).await.expect("the connection does not end first")
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Refusal {
        Refusal::new(format!("the server at {}: {error}", self.address), "see whether 'spindle serve' runs")
    }

    /// A connection, and the request to be sent over it.
    async fn connect(
        &self,
        (method, path): (Method, &str),
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> Result<(http1::SendRequest<Body>, http1::Connection<TokioIo<Stream>, Body>, Request<Body>), Refusal>
    {
        let failed = |error: &dyn std::fmt::Display| self.failed(error);
        let mut stream = self.network.connect(&self.address).await.map_err(|error| failed(&error))?;
        if let Some((tls, world)) = &self.tls {
            stream = tls.connect(world, stream).await.map_err(|error| failed(&format!("no TLS: {error}")))?;
        }
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "spindle")
            .header(KEEPS_SETTINGS, "yes");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request =
            request.body(body.map_or_else(Body::empty, Body::from)).map_err(|error| failed(&error))?;
        Ok((sender, connection, request))
    }

    /// Gets a resource.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it did not answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        self.send(Method::GET, path, None, &[]).await?.parsed()
    }

    /// Asks for a change, and reads the answer.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it did not answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Refusal> {
        let body = serde_json::to_string(body).expect("bodies can be written as JSON");
        self.send(method, path, Some(body), &[]).await?.parsed()
    }

    /// Asks for a change that is done once, however often it is asked for with this key; asks again if the connection breaks.
    ///
    /// # Errors
    ///
    /// The server did not answer: the change may be done, or not. A problem is an answer.
    pub async fn change(
        &self,
        (method, path): (Method, &str),
        body: Option<String>,
        key: &str,
    ) -> Result<ApiReply, Refusal> {
        let headers = [("idempotency-key", key)];
        match self.send(method.clone(), path, body.clone(), &headers).await {
            Ok(reply) => Ok(reply),
            Err(_) => self.send(method, path, body, &headers).await,
        }
    }

    /// Asks for a change without an answer.
    ///
    /// # Errors
    ///
    /// The server's problem, or that it did not answer.
    pub async fn command(&self, method: Method, path: &str) -> Result<(), Refusal> {
        self.send(method, path, None, &[]).await?.checked().map(|_| ())
    }
}

impl ApiReply {
    /// The reply itself, unless it is a problem.
    ///
    /// # Errors
    ///
    /// The problem.
    pub fn checked(self) -> Result<Self, Refusal> {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_success() {
            return Ok(self);
        }
        Err(match self.problem() {
            Some(problem) => problem.refusal(),
            None => Refusal::new(format!("the server answered {status}"), "see its log"),
        })
    }

    /// The problem that it is; `None` for any other reply.
    pub fn problem(&self) -> Option<ApiProblem> {
        let problem: ApiProblem = serde_json::from_str(&self.body).ok()?;
        (self.status >= 400 && !problem.detail.is_empty()).then_some(problem)
    }

    /// The answer in its body.
    ///
    /// # Errors
    ///
    /// The reply is a problem, or of another version.
    pub fn parsed<T: DeserializeOwned>(self) -> Result<T, Refusal> {
        let reply = self.checked()?;
        serde_json::from_str(&reply.body).map_err(|error| {
            let problem = format!("the server's answer cannot be read: {error}");
            Refusal::new(problem, "use the same version of Spindle for both")
        })
    }
}

/// `text` as a part of a path or a query.
pub fn in_uri(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => write!(encoded, "%{byte:02X}").expect("strings take all"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pass_through_addresses() {
        assert_eq!(in_uri("store~1"), "store~1");
        assert_eq!(in_uri("a b&c=ü/%"), "a%20b%26c%3D%C3%BC%2F%25");
    }
}
