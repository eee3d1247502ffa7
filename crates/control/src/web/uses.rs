//! Services and clients of a volume, for those who are about to take it away from them.

use super::{
    ApiState,
    caller::Caller,
    orders::{read_order, volume_of},
    problem::ApiProblem,
};
use crate::journal::tokens::CallerRole;
use array::format::row::WithheldClient;
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use serving::export::IdentityOrigin;
use utoipa::ToSchema;

/// Services and clients of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeUses {
    /// Its exports and units, in words: `NBD export NAME`, `unit TARGET/NUMBER`.
    pub services: Vec<String>,
    /// iSCSI names of the initiators that are logged in to its units. NBD clients have no names.
    pub initiators: Vec<String>,
    /// NBD clients are connected, or the connection of one broke, which may come back with what it cached.
    #[serde(default)]
    pub nbd_clients: bool,
}

/// Shows by which services a volume can be used, and by whom it is.
#[utoipa::path(get, path = "/v1/volumes/{volume}/uses", tag = "volumes", params(("volume" = String, Path, description = "UUID")),
    responses((status = 200, description = "Services and clients", body = VolumeUses), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(volume): Path<String>,
) -> Result<Json<VolumeUses>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let origin = IdentityOrigin::Volume(meant.id());
    let uses = read_order(&api, &meant.pool, "show uses", move |served| {
        Box::pin(async move {
            let device = served.exports.served(&origin);
            let clients = device.as_ref().map(|device| device.served.known_clients()).unwrap_or_default();
            let initiators = device.map(|device| device.served.initiators()).unwrap_or_default();
            Ok(VolumeUses {
                services: served.exports.services_of(&origin),
                initiators,
                nbd_clients: clients.contains(&WithheldClient::AllNbd),
            })
        })
    });
    Ok(Json(uses.await?))
}
