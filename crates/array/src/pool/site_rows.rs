//! The document of the site that serves the pool: what is needed to serve it again when nothing is left but its drives.
//! Its owner gives the bytes; the pool keeps them, whole.
//!
//! Invariants:
//!
//! 1. The head names a whole document at each moment: the one of before, or the new one.
//! 2. Parts that the head does not name mean nothing, and go with the next document.

use super::Pool;
use crate::{
    engine::Catalogue,
    error::{Error, Result},
    format::{
        RowKey, SiteId,
        features::INCOMPATIBLE_SITE,
        record::ENTRIES_MAX,
        row::{SITE_BYTES_MAX, SiteDocument},
    },
    log::LogItem,
};
use std::collections::BTreeSet;

impl Pool {
    /// The document of the site that serves the pool.
    ///
    /// # Errors
    ///
    /// Its rows are damaged; the pool works without them, and the next document takes their place.
    pub fn site_document(&self) -> Result<Option<SiteDocument>> {
        document_of(&self.shared.state.borrow().catalogue)
    }

    /// Replaces the document of the site. If this is interrupted, the pool has the one of before, or this one.
    ///
    /// # Errors
    ///
    /// It is larger than [`SITE_BYTES_MAX`]; the pool is full, or cannot write.
    ///
    /// # Panics
    ///
    /// The document is empty, or its generation is 0.
    pub async fn put_site_document(&self, site: SiteId, generation: u64, bytes: Vec<u8>) -> Result<()> {
        if bytes.len() > SITE_BYTES_MAX {
            return Err(Error::SiteTooLarge { bytes: bytes.len(), at_most: SITE_BYTES_MAX });
        }
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let before = self.shared.state.borrow().catalogue.site_row_keys();
        let used: BTreeSet<u64> = before.iter().map(|key| key.id).collect();
        let set =
            (1..).find(|set| !used.contains(set)).expect("the pool has fewer rows than there are numbers");
        let document = SiteDocument { site, generation, written_at: self.shared.wall_now(), bytes };
        let feature = self.shared.begin_rows(INCOMPATIBLE_SITE).await?;
        let mut items: Vec<LogItem> =
            document.rows(set).into_iter().map(|(row, bytes)| LogItem::Put { row, bytes }).collect();
        items.extend(before.into_iter().filter(|key| SiteDocument::is_part(*key)).map(LogItem::Remove));
        self.log_in_order((one_at_a_time, feature), items).await
    }

    /// Forgets the site.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn remove_site_document(&self) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        // The head is the first: parts alone mean nothing.
        let keys: Vec<RowKey> = self.shared.state.borrow().catalogue.site_row_keys();
        self.log_in_order(one_at_a_time, keys.into_iter().map(LogItem::Remove).collect()).await
    }

    /// Logs items in as many records as they take; after a crash, a first part of the records is found.
    pub(super) async fn log_in_order<L: Unpin + 'static>(&self, locks: L, items: Vec<LogItem>) -> Result<()> {
        // All are in the log's queue before anything awaits.
        let records: Vec<Vec<LogItem>> = items.chunks(ENTRIES_MAX).map(<[LogItem]>::to_vec).collect();
        let logged: Vec<_> = records.into_iter().map(|record| self.log.append_together(record)).collect();
        let all = async move {
            for logged in logged {
                logged.await?;
            }
            Ok(())
        };
        self.answer(locks, Box::pin(all)).await
    }
}

pub(super) fn document_of(catalogue: &Catalogue) -> Result<Option<SiteDocument>> {
    let damaged = |refusal| Error::Damaged { what: "what the pool keeps of its site".to_owned(), refusal };
    catalogue.site_document().map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::{DriveId, PoolId, SparingLevel, row::SitePartRow},
        pool::{NewDrive, NewPool, OpenSetting, create, open},
    };
    use std::rc::Rc;
    use world::{
        BlockDevice, ByteCount,
        sim::{DriveOptions, SimLimits, SimOutcome, Simulation},
    };

    #[test]
    fn damaged_rows_keep_no_pool_from_opening() {
        let mut simulation = Simulation::new(1);
        let device: Rc<dyn BlockDevice> = simulation.add_drive(DriveOptions::new(ByteCount(64 << 20)));
        let outcome = simulation.run(SimLimits::generous(), |world| async move {
            let (pool, name) = (PoolId([1; 16]), "mail".to_owned());
            let new = NewPool { pool, name, slot_bytes: 1 << 20, sparing: SparingLevel::None };
            let device = Rc::clone(&device);
            let (drive, serial) = (DriveId([2; 16]), String::new());
            let drive = NewDrive { drive, serial, domain: None, device: Rc::clone(&device) };
            create(&world, &new, &[drive]).await.expect("it is made");
            let devices = [device];
            let part = SitePartRow { bytes: b"part".to_vec() }.encode();
            let stray = RowKey::of_site_part(u64::MAX, u64::MAX);
            for (row, bytes) in [(RowKey::SITE_HEAD, vec![0xff; 56]), (stray, part), (stray, vec![3])] {
                let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
                let _feature = pool.shared.begin_rows(INCOMPATIBLE_SITE).await.expect("it is set");
                let forged = LogItem::Put { row, bytes };
                pool.log.append_together(vec![forged]).await.expect("it is logged");
                pool.close().await.expect("it closes");
                let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
                let refused = pool.site_document().expect_err("it is damaged").to_string();
                assert!(refused.contains("what the pool keeps of its site"), "{refused}");
                pool.close().await.expect("it closes");
            }
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            pool.put_site_document(SiteId([3; 16]), 1, b"whole".to_vec()).await.expect("it is written");
            let bytes = pool.site_document().expect("it is whole").map(|document| document.bytes);
            assert_eq!(bytes.as_deref(), Some(&b"whole"[..]));
        });
        assert!(matches!(outcome, SimOutcome::Completed(())), "{outcome:?}");
    }
}
