//! Words of the catalogue's format for types of other modules.

use crate::{
    backup_schedule::{BackupKind, SchedulePeriod},
    retention::DeletionRule,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer)
}

impl Serialize for SchedulePeriod {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SchedulePeriod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for BackupKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for BackupKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = text(deserializer)?;
        let kind = Self::ALL.into_iter().find(|kind| kind.word() == word);
        kind.ok_or_else(|| D::Error::custom(format!("{word:?} is no kind of a backup")))
    }
}

impl Serialize for DeletionRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for DeletionRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = text(deserializer)?;
        let rule = Self::ALL.into_iter().find(|rule| rule.word() == word);
        rule.ok_or_else(|| D::Error::custom(format!("{word:?} is no rule of deletion")))
    }
}
