//! The catalogue of a set as a file of this machine.

use protect::catalogue::{BackupCatalogue, CatalogueReader, CatalogueScope};
use report::Refusal;
use std::path::Path;
use world::{IoErrorKind, real::host_files};

/// The catalogue as it is, also while an agent has it open; `None` if there is none.
///
/// # Errors
///
/// It cannot be read, or is damaged.
pub fn read_catalogue(path: &Path) -> Result<Option<BackupCatalogue>, Refusal> {
    let refused = |error: String| Refusal::new(format!("{}: {error}", path.display()), "");
    let bytes = match host_files::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(error.to_string())),
    };
    let mut reader = CatalogueReader::new(CatalogueScope::Live);
    reader.receive(&bytes).map_err(|error| refused(error.to_string()))?;
    let read = reader.finish().map_err(|error| refused(error.to_string()))?;
    Ok(read.map(|read| read.catalogue))
}
