//! A drive of a pool, and the forms that add, replace, empty, keep, grow, readmit and remove one.

use crate::{
    fields::Fields,
    import::device_access,
    page::{Frame, PageResult, see, shown},
    pool_map::file_name,
    pools, shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem, NewDriveBody,
    health_rows::{DriveRow, DriveState},
    rows::PoolRow,
};

/// Size of a file's blocks: drives have whole ones.
const BLOCK_BYTES: u64 = 4096;

#[derive(Template)]
#[template(path = "drive.html")]
struct DrivePage<'a> {
    frame: &'a Frame,
    pool: PoolRow,
    /// UUID of the pool.
    pool_id: String,
    drive: DriveRow,
    /// UUID of the drive.
    id: String,
    /// The name that confirms what cannot be undone.
    short_name: String,
    sent: &'a Fields,
}

impl DrivePage<'_> {
    fn is_present(&self) -> bool {
        matches!(self.drive.state, DriveState::InUse | DriveState::Leaving)
    }

    fn is_leaving(&self) -> bool {
        self.drive.state == DriveState::Leaving
    }

    fn is_unused(&self) -> bool {
        self.drive.state == DriveState::Unused
    }
}

/// The serial number of a drive, else the name of its file or device.
fn short_name(drive: &DriveRow) -> &str {
    let serial = drive.serial.as_deref().filter(|serial| !serial.is_empty());
    serial.unwrap_or_else(|| file_name(&drive.path))
}

/// The drive that the fields describe: a device, if they name one, else a file.
fn new_drive(fields: &Fields) -> Result<NewDriveBody, ApiProblem> {
    let text = |name| Some(fields.text(name).to_owned()).filter(|text| !text.is_empty());
    let device = text("device");
    let size_bytes = match (&device, fields.text("size")) {
        (Some(_), "") => None,
        (Some(_), _) => {
            let next = "name a device, or give the size of a file";
            return Err(ApiProblem::bad_request("a drive is a file or a device, not both", next));
        }
        (None, _) => Some(fields.size_bytes("size")?.next_multiple_of(BLOCK_BYTES)),
    };
    Ok(NewDriveBody { size_bytes, device, domain: text("domain"), access: device_access(fields) })
}

/// Adds a drive to a pool.
pub(crate) async fn add(visit: Visit, Path(pool): Path<String>, fields: Fields) -> PageResult {
    let added = async {
        let path = format!("/v1/pools/{}/drives", escaped(&pool));
        visit.change::<DriveRow>((Method::POST, &path), &new_drive(&fields)?, fields.change()).await
    };
    match added.await {
        Ok(_) => Ok(see(&format!("/pools/{}?done=drive-added", escaped(&pool)))),
        Err(problem) => pools::page(&visit, &pool, Some(problem), &fields).await,
    }
}

pub(crate) async fn show(visit: Visit, Path((pool, drive)): Path<(String, String)>) -> PageResult {
    page(&visit, (&pool, &drive), None, &Fields::default()).await
}

async fn page(
    visit: &Visit,
    (pool_id, id): (&str, &str),
    problem: Option<ApiProblem>,
    sent: &Fields,
) -> PageResult {
    let pool: PoolRow = visit.get(&format!("/v1/pools/{}", escaped(pool_id))).await?;
    let drive = drive_of(visit, (pool_id, id)).await?;
    let short_name = short_name(&drive).to_owned();
    let title = format!("Drive {short_name} of pool {}", pool.name);
    let frame = Frame::new(visit, title, "Pools").await?.live(visit).await?.with_problem(problem);
    let (pool_id, id) = (pool_id.to_owned(), id.to_owned());
    shown(&DrivePage { frame: &frame, pool, pool_id, drive, id, short_name, sent }, &frame)
}

async fn drive_of(visit: &Visit, (pool, drive): (&str, &str)) -> Result<DriveRow, ApiProblem> {
    visit.get(&format!("/v1/pools/{}/drives/{}", escaped(pool), escaped(drive))).await
}

/// A change of the drive, as a form of its page asks for it.
pub(crate) async fn change(
    visit: Visit,
    Path((pool, drive, what)): Path<(String, String, String)>,
    fields: Fields,
) -> PageResult {
    match changed(&visit, (&pool, &drive, &what), &fields).await {
        // The drive may be gone.
        Ok(done) => Ok(see(&format!("/pools/{}?done={done}", escaped(&pool)))),
        Err(problem) => page(&visit, (&pool, &drive), Some(problem), &fields).await,
    }
}

/// Makes the change. Returns its name in the query of the page that follows.
async fn changed(
    visit: &Visit,
    (pool, drive, what): (&str, &str, &str),
    fields: &Fields,
) -> Result<&'static str, ApiProblem> {
    let (method, end, body, done) = match what {
        "retire" => (Method::DELETE, "", None, "drive-leaves"),
        "keep" => (Method::POST, "/keep", None, "drive-kept"),
        "grow" => (Method::POST, "/grow", None, "drive-grown"),
        "readmit" => (Method::POST, "/readmit", None, "drive-readmitted"),
        "forget" => (Method::POST, "/forget", None, "drive-forgotten"),
        "replace" => (Method::POST, "/replacement", Some(new_drive(fields)?), "drive-replaced"),
        _ => return Err(ApiProblem::not_found(format!("no form of a drive is called {what}"))),
    };
    if ["retire", "forget", "replace"].contains(&what) {
        let row = drive_of(visit, (pool, drive)).await?;
        fields.check_typed("drive", short_name(&row))?;
    }
    let path = format!("/v1/pools/{}/drives/{}{end}", escaped(pool), escaped(drive));
    let change = FormChange { tag: None, ..fields.change() };
    visit.change::<serde_json::Value>((method, &path), &body, change).await?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_drive_is_a_file_or_a_device() {
        let body = |pairs: &[(&str, &str)]| new_drive(&Fields::of(pairs)).ok();
        let file = body(&[("size", "1.5"), ("size_unit", "MiB"), ("device", "")]).unwrap();
        assert_eq!((file.size_bytes, file.device), (Some(3 << 19), None));
        let odd = body(&[("size", "0.001"), ("size_unit", "MiB")]).unwrap();
        assert_eq!(odd.size_bytes, Some(4096), "whole blocks");
        let device = body(&[("size", ""), ("device", "/dev/sdc"), ("domain", "left")]).unwrap();
        assert_eq!((device.size_bytes, device.device.as_deref()), (None, Some("/dev/sdc")));
        assert_eq!(device.domain.as_deref(), Some("left"));
        assert!(body(&[("size", "1"), ("size_unit", "GiB"), ("device", "/dev/sdc")]).is_none());
        assert!(body(&[]).is_none());
        let remote = body(&[("device", "iscsi://192.0.2.9/iqn.x/0"), ("chap_name", "array1")]).unwrap();
        assert_eq!(remote.access.unwrap().chap_name.as_deref(), Some("array1"));
    }
}
