//! The whole of an import, and its ends: the volume is independent of its source, or is given up.

use super::{ImportFindings, ImportTarget, ImportTerms, ImportedVolume, Pool, compare::Comparison};
use crate::{
    engine::events::EventKind,
    error::{Error, Result},
    format::{BLOCK_BYTES, RowKey, row::BranchRow},
    log::LogItem,
    pool::VolumeKey,
    simulation::canary::{self, Canary},
};
use futures_util::future::try_join;
use std::{rc::Rc, time::Duration};
use tokio::sync::watch;
use world::Job;

/// Between two looks for copies under way.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl Pool {
    /// Copies the blocks of a volume that is being imported, compares what no host wrote with the source, and lets the
    /// source go. Goes on where an earlier call was interrupted. While the source does not answer, or the pool is full,
    /// it waits, and [`ImportStatus::problem`](super::ImportStatus::problem) has the reason.
    ///
    /// # Errors
    ///
    /// No such volume, or it is not being imported, or its source is not attached; the source has another size than
    /// before; blocks cannot be read, or have changed; the job was cancelled; or the pool has stopped. The volume can be
    /// used on in all of these cases, as long as its source answers.
    pub async fn import<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        terms: ImportTerms,
        job: &Job,
    ) -> Result<ImportedVolume> {
        let number = self.number_of(volume.into())?;
        let target = self.import_target(number)?;
        let done = self.import_target_to_its_end(&target, terms, job).await;
        if !self.shared.state.borrow().catalogue.is_importing(target.branch) {
            // It has ended, or the volume was deleted.
            self.host.imports.borrow_mut().remove(&target.branch);
            self.import_problems.borrow_mut().remove(&target.volume);
        }
        done
    }

    async fn import_target_to_its_end(
        &self,
        target: &ImportTarget,
        terms: ImportTerms,
        job: &Job,
    ) -> Result<ImportedVolume> {
        let size_bytes = target.end * BLOCK_BYTES as u64;
        job.set_total(2 * size_bytes);
        job.advance(target.from * BLOCK_BYTES as u64);
        self.import_problems.borrow_mut().entry(target.volume).or_default().compared_bytes = None;
        let (filled, compared) = self.fill_and_compare(target, terms, job).await?;
        let findings = ImportFindings::of(&compared.bad, &compared.changed);
        if !findings.is_empty() && !terms.keeps_findings {
            return Err(Error::ImportIncomplete(findings));
        }
        self.end_import(target).await?;
        self.shared.events.report(EventKind::VolumeImported {
            volume: self.volume_row(target.number).name,
            compared_bytes: Comparison::bytes(compared.same),
            read_back_bytes: Comparison::bytes(compared.read_back),
            host_bytes: Comparison::bytes(compared.of_hosts),
            given_up_bytes: findings.bad_bytes + findings.changed_bytes,
        });
        Ok(ImportedVolume {
            size_bytes,
            copied_bytes: filled + Comparison::bytes(compared.copied),
            compared_bytes: Comparison::bytes(compared.same),
            read_back_bytes: Comparison::bytes(compared.read_back),
            host_bytes: Comparison::bytes(compared.of_hosts),
            findings,
        })
    }

    /// Copies, then compares: two streams would have the source seek. If it is read once, the comparison reads the pool alone,
    /// and goes along. Returns the bytes that were copied, too.
    async fn fill_and_compare(
        &self,
        target: &ImportTarget,
        terms: ImportTerms,
        job: &Job,
    ) -> Result<(u64, Comparison)> {
        let (mark, filled_below) = watch::channel(target.from);
        let fill = self.fill_import(target, mark, job);
        if canary::is(Canary::ImportNotCompared) {
            return Ok((fill.await?, Comparison::default()));
        }
        let compare = self.compare_import(target, terms, filled_below, job);
        if terms.reads_once {
            // Whichever fails ends both: copies that have begun are tasks of their own.
            return try_join(fill, compare).await;
        }
        Ok((fill.await?, compare.await?))
    }

    /// Takes the row of an import and its fork away, in one record, and lets the source go.
    async fn end_import(&self, target: &ImportTarget) -> Result<()> {
        // A copy that came behind this record would not be known as one.
        let copies = Rc::clone(&self.import_problems.borrow_mut().entry(target.volume).or_default().copies);
        while Rc::strong_count(&copies) > 2 {
            self.shared.check_runs()?;
            self.shared.world.sleep(LOOK_EVERY).await;
        }
        let one_at_a_time = self.shared.lock_changes().await;
        let row = {
            let state = self.shared.state.borrow();
            if !state.catalogue.is_importing(target.branch) {
                return Err(Error::ImportStopped);
            }
            let row = state.catalogue.branch(target.branch).expect("it is being imported");
            BranchRow { parent: None, depth: 0, filled_below: None, ..row.clone() }
        };
        let parts = vec![
            LogItem::Put { row: RowKey::of_branch(target.branch), bytes: row.encode() },
            LogItem::Remove(RowKey::of_import(target.number)),
        ];
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    /// Gives an import up: deletes its volume. The source has all that the volume had, but for what hosts wrote; with
    /// `loses_writes` that does not matter. Nobody should have the volume open.
    ///
    /// # Errors
    ///
    /// No such volume, or it is not being imported; hosts have written to it; or the pool cannot write.
    pub async fn give_up_import<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        loses_writes: bool,
    ) -> Result<()> {
        let number = self.number_of(volume.into())?;
        let row = self.volume_row(number);
        if !self.shared.state.borrow().catalogue.is_importing(row.branch) {
            return Err(Error::NotImporting(row.name));
        }
        if !loses_writes {
            let host_bytes = self.host_bytes_of(&self.known_target(number)).await?;
            if host_bytes > 0 {
                return Err(Error::ImportWritten { volume: row.name, host_bytes });
            }
        }
        self.delete_volume_of_any(row.volume.into(), false).await?;
        self.host.imports.borrow_mut().remove(&row.branch);
        self.import_problems.borrow_mut().remove(&row.volume);
        Ok(())
    }
}
