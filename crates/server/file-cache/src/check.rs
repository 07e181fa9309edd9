//! Comparison of catalogue, replicas and global store, and repair of whatever can be repaired without loss.

use std::collections::HashMap;
use std::io;

use catalogue::{Record, State};
use global_store::Access;
use serde::Serialize;
use types::{Identity, Moved, Shown, Version};

use crate::burst_buffer::replica::How;
use crate::burst_buffer::sums::{self, Sums};
use crate::cache::{Inner, broken};
use crate::global_copy::content::ContentOwner;
use crate::limits::STUCK_LISTED;
use crate::residency::Removal;
use crate::seam::FileCache;

/// Result of a check. Lists are cut at 1,000 entries, counts are not.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CheckReport {
    /// Number of records checked.
    pub records: u64,
    /// Number of replicas checked.
    pub replicas: u64,
    /// Problems found, one sentence each.
    pub findings: Vec<String>,
    /// Number of findings.
    pub found: u64,
    /// Number of findings that were repaired.
    pub mended: u64,
}

impl CheckReport {
    fn find(&mut self, mended: bool, text: impl FnOnce() -> String) {
        self.found += 1;
        self.mended += u64::from(mended);
        if self.findings.len() < STUCK_LISTED {
            self.findings.push(if mended { format!("{} (mended)", text()) } else { text() });
        }
    }
}

impl FileCache {
    /// Compares everything. `contents`: clean replicas are compared with their checksums, or, if there are none, with
    /// the global copies, which this reads. `repair`: drops clean replicas that are damaged, stale or not wanted any
    /// more, and removes replicas without a record. Dirty data is never changed. Files in use are skipped.
    pub fn check(&self, contents: bool, repair: bool) -> io::Result<CheckReport> {
        let inner = &self.inner;
        let mut report = CheckReport::default();
        let mut records: HashMap<Version, (Identity, Record)> = HashMap::new();
        let mut damaged = Vec::new();
        let scanned = inner.catalogue.scan(
            &mut |identity, record| {
                records.insert(record.version, (identity, record));
                true
            },
            &mut |error| damaged.push(error.to_string()),
        );
        scanned.map_err(broken)?;
        for error in damaged {
            report.find(false, || error);
        }
        let mut without = Vec::new();
        inner.replicas.each(&mut |version| {
            report.replicas += 1;
            if !records.contains_key(&version) && version < inner.superblock.first {
                without.push(version);
            }
            true
        })?;
        for version in without {
            let path = inner.replicas.path(version);
            if inner.replicas.has_identity_attribute(version) {
                let identity_attribute = inner.replicas.read_identity_attribute(version);
                let whose = identity_attribute
                    .map_or("an unknown file".into(), |identity_attribute| identity_attribute.hint.shown().to_string());
                report.find(false, || format!("{} holds unsaved data of {whose} and has no record", path.shown()));
            } else {
                let mended = repair && inner.replicas.remove(version).is_ok();
                report.find(mended, || format!("{} has no record", path.shown()));
            }
        }
        for (identity, record) in records.into_values() {
            report.records += 1;
            inner.check_record(&mut report, &identity, &record, contents, repair);
        }
        Ok(report)
    }
}

impl Inner {
    fn check_record(
        &self,
        report: &mut CheckReport,
        identity: &Identity,
        record: &Record,
        contents: bool,
        repair: bool,
    ) {
        let name = record.hint.shown();
        if self.known(identity).is_some_and(|file| file.live.lock().removal == Removal::Kept) {
            return;
        }
        if record.state != State::Clean {
            // A file removed since its record was read is no loss.
            let still = || matches!(self.catalogue.get(identity), Ok(Some(now)) if now.version == record.version);
            if self.replicas.stat(record.version).is_err() && still() {
                report.find(false, || format!("{name}: its unsaved data is not in the burst buffer"));
            }
            if record.orphaned {
                report.find(false, || format!("{name}: has unsaved data and is not in the global store"));
            }
            if matches!(record.state, State::Conflict | State::Failed) {
                report.find(false, || format!("{name}: {}", record.reason));
            }
            return;
        }
        let wrong = match self.fault_of(identity, record, contents) {
            Ok(None) => return,
            Ok(Some(wrong)) => wrong,
            Err(error) => return report.find(false, || format!("{name}: {error}")),
        };
        let mended = repair && self.evict(identity).is_ok();
        report.find(mended, || format!("{name}: {wrong}"));
    }

    fn fault_of(&self, identity: &Identity, record: &Record, contents: bool) -> io::Result<Option<&'static str>> {
        let Ok(stat) = self.replicas.stat(record.version) else { return Ok(Some("its replica is missing")) };
        if stat.st_size as u64 != record.base.size {
            return Ok(Some("its replica has another size than its record"));
        }
        let Some(anchor) = self.store.locate(identity, &record.hint, false)? else {
            return Ok(Some("it is not in the global store any more"));
        };
        let found = anchor.attributes()?.fingerprint;
        let changed = match record.base.moved(&found) {
            Moved::Nothing => false,
            Moved::Content => true,
            Moved::ChangeTime => {
                let bytes = self.whose_bytes(record, &*anchor, found.size)?;
                !matches!(bytes, ContentOwner::Base | ContentOwner::Replica)
            }
        };
        if changed {
            return Ok(Some("its replica is older than the global copy"));
        }
        if !contents {
            return Ok(None);
        }
        let replica = self.replicas.open_as(record.version, How::Read)?;
        let sums = Sums::load(&self.replicas.sums_path(record.version));
        Ok(match sums {
            Some(sums) if sums::of_replica(&replica, record.base.size)? == sums => None,
            Some(_) => Some("its replica differs from its checksums"),
            None if !self.is_equal(&replica, &*anchor.open(Access::Read)?, record.base.size)? => {
                Some("its replica differs from the global copy")
            }
            None => None,
        })
    }
}
