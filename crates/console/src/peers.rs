//! Other sites: how this one is connected with them, and their pairing. A pairing token is on the page that answers its form, once.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{
        DrGroupList, DrGroupRow, DrSiteRow, DrSites, MadePairingToken, NewPairingBody, NewPairingTokenBody,
    },
};

const SITES_PATH: &str = "/v1/dr/sites";

#[derive(Template)]
#[template(path = "peers.html")]
struct PeersPage<'a> {
    frame: &'a Frame,
    /// A problem if this server listens for no other site, or the caller may not see all pools.
    sites: Result<DrSites, ApiProblem>,
    /// The token that was just made, and the minutes for which it is valid.
    made: Option<(MadePairingToken, u64)>,
    sent: &'a Fields,
}

#[derive(Template)]
#[template(path = "peer.html")]
struct PeerPage<'a> {
    frame: &'a Frame,
    site: DrSiteRow,
    /// Groups with it.
    groups: Vec<DrGroupRow>,
}

impl PeersPage<'_> {
    fn may_pair(&self) -> bool {
        self.frame.may_administer() && self.frame.sees_all_pools() && self.sites.is_ok()
    }
}

/// The address to give to another site: a server that listens at all addresses of its machine names none.
fn address_elsewhere(listens: &str) -> String {
    match listens.strip_prefix("0.0.0.0").or_else(|| listens.strip_prefix("[::]")) {
        Some(port) => format!("ADDRESS{port}"),
        None => listens.to_owned(),
    }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = frame(&visit).await?.live(&visit).await?;
    page(&visit, &frame, None, &Fields::default()).await
}

async fn frame(visit: &Visit) -> Result<Frame, ApiProblem> {
    Frame::new(visit, "Other sites", "Replication").await
}

async fn page(
    visit: &Visit,
    frame: &Frame,
    made: Option<(MadePairingToken, u64)>,
    sent: &Fields,
) -> PageResult {
    let sites = visit.get(SITES_PATH).await;
    shown(&PeersPage { frame, sites, made, sent }, frame)
}

/// Makes a pairing token. The answer has it: a redirection would need to keep it.
pub(crate) async fn make_token(visit: Visit, fields: Fields) -> PageResult {
    let made = async {
        let minutes: u64 = fields.number("minutes")?;
        let body = NewPairingTokenBody { valid_s: minutes.saturating_mul(60) };
        let made =
            visit.change::<MadePairingToken>((Method::POST, "/v1/dr/tokens"), &body, fields.change()).await?;
        Ok((made, minutes))
    };
    match made.await {
        Ok(made) => page(&visit, &frame(&visit).await?, Some(made), &Fields::default()).await,
        Err(problem) => page(&visit, &frame(&visit).await?.with_problem(Some(problem)), None, &fields).await,
    }
}

/// Pairs with a site that made a token.
pub(crate) async fn pair(visit: Visit, fields: Fields) -> PageResult {
    let text = |name| fields.text(name).to_owned();
    let body = NewPairingBody { name: text("name"), address: text("address"), token: text("token") };
    match visit.change::<DrSiteRow>((Method::POST, SITES_PATH), &body, fields.change()).await {
        Ok(site) => Ok(see(&format!("/peers/{}?done=paired", escaped(&site.name)))),
        Err(problem) => page(&visit, &frame(&visit).await?.with_problem(Some(problem)), None, &fields).await,
    }
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    peer_page(&visit, &name, None).await
}

async fn peer_page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let sites: DrSites = visit.get(SITES_PATH).await?;
    let site = sites.peers.into_iter().find(|site| site.name == name);
    let site = site.ok_or_else(|| ApiProblem::not_found(format!("this site is not paired with {name:?}")))?;
    let list: DrGroupList = visit.get("/v1/dr/groups").await?;
    let groups = list.groups.into_iter().filter(|group| group.peer == name).collect();
    let frame = Frame::new(visit, format!("Site {name}"), "Replication").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    shown(&PeerPage { frame: &frame, site, groups }, &frame)
}

/// Ends the pairing with the site whose name was typed.
pub(crate) async fn unpair(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        fields.check_typed("site", &name)?;
        let path = format!("{SITES_PATH}/{}", escaped(&name));
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<()>((Method::DELETE, &path), &(), change).await
    };
    match end.await {
        Ok(()) => Ok(see("/peers?done=unpaired")),
        Err(problem) => peer_page(&visit, &name, Some(problem)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_all_interfaces_is_no_address_for_another_site() {
        assert_eq!(address_elsewhere("192.0.2.20:7789"), "192.0.2.20:7789");
        assert_eq!(address_elsewhere("0.0.0.0:7789"), "ADDRESS:7789");
        assert_eq!(address_elsewhere("[::]:7789"), "ADDRESS:7789");
    }
}
