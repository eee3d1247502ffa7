//! A served site writes its documents into its pools.
//!
//! The journal gets the number of a change before any pool does, so a number never means two things. A pool that was away
//! gets its document with the next apply, at the latest at the next start.

use super::{SiteServer, WantedPool, server::parse};
use crate::{
    hexadecimal::hexadecimal,
    journal::recovery::{KeptSite, RecoveryRecord},
    planted::{self, ApplyBug},
    recovery::{
        PoolDocument, RecoveryKey,
        parts::part_of,
        sealing::{SealedSecret, SecretPlace},
        secrets::{self, SiteSecret},
    },
};
use array::format::{PoolId, SiteId, row::SITE_GENERATION_MAX};
use plan::site::Site;
use report::Refusal;
use ring::digest::{Context, SHA256};
use serving::{pool::folder::refusal, uuid::random_uuid};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use world::real::host_files;

/// Folder of the server for documents that it did not write and replaced.
const SAVED_FOLDER: &str = "replaced-documents";

/// The document that a pool has now.
struct KeptDocument {
    pool: PoolId,
    /// Site and generation; `None` without a document, or if it is damaged.
    kept: Option<(SiteId, u64)>,
}

impl SiteServer {
    /// Writes the document of each open pool that has not the one of the site `text`, whose paths are from the root. A pool
    /// that cannot be written says so, and gets it later.
    ///
    /// # Errors
    ///
    /// The journal cannot be written.
    pub(super) async fn keep_documents(&self, text: &str, pools: &[WantedPool]) -> Result<(), Refusal> {
        let site = parse(text)?;
        let (secrets, unread) = secrets::read(&site);
        unread.iter().for_each(|line| self.notices.warn(line.clone()));
        let key = self.key_for(&secrets)?;
        let names: Vec<&String> = pools.iter().map(|pool| &pool.name).collect();
        let parts: BTreeMap<&String, Site> = names.iter().map(|name| (*name, part_of(&site, name))).collect();
        let mut kept = BTreeMap::new();
        for name in names.iter().filter(|name| self.daemon.pool(name).is_some()) {
            match self.kept_document(name).await {
                Ok(document) => drop(kept.insert(*name, document)),
                Err(refusal) => self.notices.of(name).warn(not_kept(&refusal)),
            }
        }
        let fingerprint = fingerprint(&parts, &secrets, key.as_ref());
        let known = self.journal.kept_site().map_err(|error| error.refusal())?;
        let now = self.number_change(known.clone(), fingerprint, kept.values())?;
        let id = SiteId(now.site);
        let all = if planted::is(ApplyBug::DocumentOfOnePool) { 1 } else { usize::MAX };
        for (name, KeptDocument { pool, kept }) in kept.into_iter().take(all) {
            if kept == Some((id, now.generation)) {
                continue;
            }
            if let Some((other, generation)) = kept
                && !known
                    .as_ref()
                    .is_some_and(|known| known.site == other.0 && generation <= known.generation)
                && let Err(refusal) = self.save_document(name, pool, (other, generation)).await
            {
                self.notices.of(name).warn(not_kept(&refusal));
                continue;
            }
            let part = &parts[name];
            let labels: BTreeSet<String> = secrets::labels(part).into_iter().collect();
            let own = secrets.iter().filter(|secret| labels.contains(&secret.label));
            let seal = |secret: &SiteSecret| {
                let place = SecretPlace { site: id, pool, label: &secret.label };
                SealedSecret::seal(
                    &self.world,
                    key.as_ref().expect("there are secrets"),
                    place,
                    &secret.bytes,
                )
            };
            let sealed: Vec<SealedSecret> = own.map(seal).collect();
            let key = key.as_ref().filter(|_| !sealed.is_empty()).map(RecoveryKey::id);
            let group = name.clone();
            let document = PoolDocument { pool, group, key, secrets: sealed, site: part.clone() };
            if let Err(refusal) = self.put_document(name, (id, now.generation), document.encode()).await {
                self.notices.of(name).warn(not_kept(&refusal));
            }
        }
        Ok(())
    }

    /// The recovery key that nobody has seen yet, to be shown now. It is to be declared shown once it was.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn unseen_recovery_key(&self) -> Result<Option<RecoveryRecord>, Refusal> {
        let known = self.journal.recovery_key().map_err(|error| error.refusal())?;
        Ok(known.filter(|record| !record.is_shown))
    }

    /// Declares the recovery key shown.
    ///
    /// # Errors
    ///
    /// The journal cannot be written.
    pub fn recovery_key_was_shown(&self, record: RecoveryRecord) -> Result<(), Refusal> {
        let shown = RecoveryRecord { is_shown: true, ..record };
        self.journal.put_recovery_key(&shown).map_err(|error| error.refusal())
    }

    /// The key to seal secrets with: made with the first secret.
    fn key_for(&self, secrets: &[SiteSecret]) -> Result<Option<RecoveryKey>, Refusal> {
        let known = self.journal.recovery_key().map_err(|error| error.refusal())?;
        if known.is_some() || secrets.is_empty() {
            return Ok(known.map(|record| record.key));
        }
        let key = RecoveryKey::generate(&self.world);
        let made_unix_s = self.world.wall().seconds;
        let record = RecoveryRecord { key: key.clone(), made_unix_s, is_shown: false };
        self.journal.put_recovery_key(&record).map_err(|error| error.refusal())?;
        Ok(Some(key))
    }

    /// The number of the site's documents, one higher if they have changed. It is above those that the pools have.
    fn number_change<'k>(
        &self,
        known: Option<KeptSite>,
        fingerprint: String,
        kept: impl Iterator<Item = &'k KeptDocument>,
    ) -> Result<KeptSite, Refusal> {
        let in_pools: Vec<(SiteId, u64)> = kept.filter_map(|document| document.kept).collect();
        let newest = |site: SiteId| {
            in_pools.iter().filter(|(other, _)| *other == site).map(|(_, generation)| *generation).max()
        };
        if let Some(known) = &known
            && known.fingerprint == fingerprint
            && newest(SiteId(known.site)).is_none_or(|newest| newest <= known.generation)
        {
            return Ok(known.clone());
        }
        let site = match &known {
            Some(known) => SiteId(known.site),
            // A journal that was lost: the pools go on being of the site that they were of.
            None => match in_pools.iter().max_by_key(|(_, generation)| *generation) {
                Some((site, _)) => *site,
                None => SiteId(random_uuid(&self.world)),
            },
        };
        let before = known.map_or(0, |known| known.generation).max(newest(site).unwrap_or(0));
        if before >= SITE_GENERATION_MAX {
            let problem =
                format!("the number of the site's last change is {before}, and there is none above it");
            return Err(Refusal::new(problem, "it was forged: find out which pool has it"));
        }
        let raised = if planted::is(ApplyBug::GenerationNotRaised) { before.max(1) } else { before + 1 };
        let now = KeptSite { site: site.0, generation: raised, fingerprint };
        self.journal.put_kept_site(&now).map_err(|error| error.refusal())?;
        Ok(now)
    }

    async fn kept_document(&self, pool: &str) -> Result<KeptDocument, Refusal> {
        self.order(pool, "site document", |served| {
            Box::pin(async move {
                // A damaged one is replaced.
                let document = served.pool.site_document().ok().flatten();
                let kept = document.map(|document| (document.site, document.generation));
                Ok(KeptDocument { pool: served.pool.id(), kept })
            })
        })
        .await
    }

    /// Saves a document that this journal did not write, before another one takes its place: it may be the last copy of
    /// rights and secrets.
    async fn save_document(
        &self,
        name: &str,
        pool: PoolId,
        (site, generation): (SiteId, u64),
    ) -> Result<(), Refusal> {
        let document = self.order(name, "site document", |served| {
            Box::pin(async move { Ok(served.pool.site_document().ok().flatten()) })
        });
        let Some(document) = document.await? else { return Ok(()) };
        let folder = self.context.state.join(SAVED_FOLDER);
        let file = folder.join(format!("{pool}-{generation}.toml"));
        let refused = |error: world::IoError| Refusal::new(error.to_string(), "check the server's folder");
        host_files::create_private_dir_all(&folder).map_err(refused)?;
        host_files::write_secret(&file, &document.bytes).map_err(refused)?;
        self.notices.of(name).warn(format!(
            "it kept change {generation} of the site {site}, which this server did not write: that is in {} now, and the site \
             that is served takes its place",
            file.display()
        ));
        Ok(())
    }

    /// Has a pool that is not served any more forget the site.
    pub(super) async fn forget_document(&self, pool: &str) -> Result<(), Refusal> {
        let shown = pool.to_owned();
        self.order(pool, "forget site document", move |served| {
            Box::pin(async move {
                let removed = served.pool.remove_site_document().await;
                removed.map_err(|error| refusal(Path::new(&shown), &error, ""))
            })
        })
        .await
    }

    async fn put_document(
        &self,
        pool: &str,
        (site, generation): (SiteId, u64),
        bytes: Vec<u8>,
    ) -> Result<(), Refusal> {
        let shown = pool.to_owned();
        self.order(pool, "keep site document", move |served| {
            Box::pin(async move {
                let put = served.pool.put_site_document(site, generation, bytes).await;
                put.map_err(|error| refusal(Path::new(&shown), &error, ""))
            })
        })
        .await
    }
}

fn not_kept(refusal: &Refusal) -> String {
    format!(
        "targets, rights and schedules of the site are not kept in this pool as they are now: {refusal}; the next apply or \
         start tries again"
    )
}

/// A number for all documents and their secrets. The key is hashed as well: who reads the journal learns nothing new.
fn fingerprint(parts: &BTreeMap<&String, Site>, secrets: &[SiteSecret], key: Option<&RecoveryKey>) -> String {
    let mut hash = Context::new(&SHA256);
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    key.iter().for_each(|key| add(key.bytes()));
    for (name, part) in parts {
        add(name.as_bytes());
        add(part.to_toml().as_bytes());
    }
    for secret in secrets {
        add(secret.label.as_bytes());
        add(&secret.bytes);
    }
    hexadecimal(hash.finish().as_ref())
}
