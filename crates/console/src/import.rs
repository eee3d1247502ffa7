//! Imports: a device elsewhere becomes a volume of a pool, by a form on the pool's page.

use crate::{
    fields::Fields,
    page::{PageResult, see},
    pools,
    visit::{Visit, escaped},
};
use axum::{extract::Path, http::Method};
use control::web::{DeviceAccessBody, client::ImportBody, health_rows::JobRow};

/// Credentials and options of a form for a device on another machine; `None` if all are empty.
pub(crate) fn device_access(fields: &Fields) -> Option<DeviceAccessBody> {
    let text = |name| Some(fields.text(name).to_owned()).filter(|text| !text.is_empty());
    let access = DeviceAccessBody {
        chap_name: text("chap_name"),
        chap_secret_file: text("chap_secret_file"),
        chap_target_name: text("chap_target_name"),
        chap_target_secret_file: text("chap_target_secret_file"),
        digests: fields.is_checked("digests"),
    };
    Some(access).filter(|access| *access != DeviceAccessBody::default())
}

/// Begins the import, or goes on with it.
pub(crate) async fn begin(visit: Visit, Path(pool): Path<String>, fields: Fields) -> PageResult {
    let access = device_access(&fields).unwrap_or_default();
    let body = ImportBody {
        name: fields.text("volume").to_owned(),
        from: fields.text("from").to_owned(),
        chap_name: access.chap_name,
        chap_secret_file: access.chap_secret_file,
        chap_target_name: access.chap_target_name,
        chap_target_secret_file: access.chap_target_secret_file,
        digests: access.digests,
        skip_bad: fields.is_checked("skip_bad"),
        read_once: fields.is_checked("read_once"),
    };
    let path = format!("/v1/pools/{}/imports", escaped(&pool));
    match visit.change::<JobRow>((Method::POST, &path), &body, fields.change()).await {
        Ok(_) => Ok(see(&format!("/pools/{}?done=import#jobs", escaped(&pool)))),
        Err(problem) => pools::page(&visit, &pool, Some(problem), &fields).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_without_credentials_sends_none() {
        assert_eq!(device_access(&Fields::of(&[("device", "/dev/sdc"), ("chap_name", " ")])), None);
        let named = Fields::of(&[("chap_name", "array1"), ("chap_secret_file", "/etc/spindle/chap")]);
        let access = device_access(&named).unwrap();
        assert_eq!(access.chap_name.as_deref(), Some("array1"));
        assert_eq!(access.chap_secret_file.as_deref(), Some("/etc/spindle/chap"));
        assert!(access.chap_target_name.is_none() && !access.digests);
        assert!(device_access(&Fields::of(&[("digests", "on")])).unwrap().digests);
    }
}
