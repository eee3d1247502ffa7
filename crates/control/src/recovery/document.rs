//! The document that a pool keeps of its site: as TOML, so that a person can read it as well.

use super::sealing::SealedSecret;
use array::format::PoolId;
use plan::site::Site;
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::uuid::parse_uuid;

/// The version that this program writes and reads.
const VERSION: u32 = 1;

/// A pool's part of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDocument {
    pub pool: PoolId,
    /// Name of the pool's group in the site.
    pub group: String,
    /// Id of the recovery key of the secrets; none without secrets.
    pub key: Option<String>,
    pub secrets: Vec<SealedSecret>,
    /// The site without the parts of other pools. It refers to volumes of the pool that it does not list.
    pub site: Site,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentText {
    version: u32,
    pool: String,
    group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, rename = "secret", skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<SealedSecret>,
    site: Site,
}

#[derive(Deserialize)]
struct DocumentVersion {
    version: u32,
}

impl PoolDocument {
    pub fn encode(&self) -> Vec<u8> {
        let Self { pool, group, key, secrets, site } = self.clone();
        let text = DocumentText { version: VERSION, pool: pool.to_string(), group, key, secrets, site };
        toml::to_string(&text).expect("strings, numbers and lists of them").into_bytes()
    }

    /// The document of a pool.
    ///
    /// # Errors
    ///
    /// It is damaged, of a newer program, or of another pool.
    pub fn decode(bytes: &[u8], pool: PoolId) -> Result<Self, Refusal> {
        let damaged = |why: String| {
            // Only the first line: the rest shows a part of the text.
            let why = why.lines().next().unwrap_or_default().to_owned();
            Refusal::new(format!("what pool {pool} keeps of its site is damaged: {why}"), "")
        };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text".to_owned()))?;
        let version = toml::from_str::<DocumentVersion>(text).map_err(|error| damaged(error.to_string()))?;
        if version.version != VERSION {
            let problem = format!("what pool {pool} keeps of its site has version {}", version.version);
            return Err(Refusal::new(problem, "import it with the program that served it, or a newer one"));
        }
        let text: DocumentText = toml::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let own = PoolId(parse_uuid(&text.pool).map_err(damaged)?);
        if own != pool {
            let problem = format!("what pool {pool} keeps is of pool {own}");
            return Err(Refusal::new(problem, "it was copied there, and counts for nothing"));
        }
        let DocumentText { group, key, secrets, site, .. } = text;
        if !site.groups.iter().any(|known| known.name == group) {
            return Err(damaged(format!("it lacks its group {group:?}")));
        }
        Ok(Self { pool, group, key, secrets, site })
    }
}
