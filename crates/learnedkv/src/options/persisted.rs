//! Keyspace options by name, as they stand in the manifest and as programs are told them.
//!
//! Numbers are decimal; flags are `true` or `false`; a filter may be `none`. Those of a
//! keyspace that was made with one option, `settled_compression` zstd of level 7, in their order:
//! ```text
//! store = tiered
//! level_base_bytes = 134217728
//! level_multiplier = 10
//! block_bytes = 4096
//! partition_bytes = 67108864
//! delta_limit_percent = 25
//! min_conversion_bytes = 536870912
//! over_provision_percent = 30
//! lsm_ratio_percent = 100
//! settle_for_reads = true
//! separate_at = 512
//! inline_limit = 16384
//! move_values = true
//! lsm_index = exact
//! settled_index = exact
//! lsm_compression = none
//! settled_compression = zstd:7
//! lsm_filter = blocked-bloom:10
//! settled_filter = none
//! attach_filters = true
//! ```

use std::sync::Arc;

use super::{Chosen, KeyspaceOptions, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::format::compression::Compression;
use crate::format::manifest::OptionList;
use crate::sstable::filter::FilterKind;
use crate::sstable::index::IndexKind;

impl KeyspaceOptions {
    /// The options as they stand in the manifest.
    pub(crate) fn encode(&self) -> OptionList {
        let pair = |name: &str, value: String| (name.to_owned(), value);
        Arc::new(vec![
            pair("store", self.chosen_store().name().to_owned()),
            pair("level_base_bytes", self.level_base_bytes.to_string()),
            pair("level_multiplier", self.level_multiplier.to_string()),
            pair("block_bytes", self.block_bytes.to_string()),
            pair("partition_bytes", self.partition_bytes.to_string()),
            pair("delta_limit_percent", self.delta_limit_percent.to_string()),
            pair("min_conversion_bytes", self.min_conversion_bytes.to_string()),
            pair("over_provision_percent", self.over_provision_percent.to_string()),
            pair("lsm_ratio_percent", self.lsm_ratio_percent.to_string()),
            pair("settle_for_reads", self.settle_for_reads.to_string()),
            pair("separate_at", self.separate_at.to_string()),
            pair("inline_limit", self.inline_limit.to_string()),
            pair("move_values", self.move_values.to_string()),
            pair("lsm_index", self.lsm_index.to_string()),
            pair("settled_index", self.settled_index.to_string()),
            pair("lsm_compression", self.lsm_compression.to_string()),
            pair("settled_compression", self.settled_compression.to_string()),
            pair("lsm_filter", filter_text(self.lsm_filter)),
            pair("settled_filter", filter_text(self.settled_filter)),
            pair("attach_filters", self.attach_filters.to_string()),
        ])
    }

    /// Reads what [`KeyspaceOptions::encode`] wrote.
    ///
    /// # Errors
    /// `Unsupported` for an option or a value this build does not know, or would not take.
    pub(crate) fn decode(pairs: &[(String, String)]) -> Result<KeyspaceOptions> {
        let unsupported = |what: String| {
            let message = format!("keyspace option {what}; another build of learnedkv wrote it");
            Error::new(ErrorKind::Unsupported, message)
        };
        let mut options = KeyspaceOptions::default();
        for (name, value) in pairs {
            let set = options.set(name, value);
            set.map_err(|e| unsupported(format!("{name} = {value}: {e}")))?;
        }
        options.check().map_err(|e| unsupported(e.to_string()))?;
        Ok(options)
    }

    /// Sets an option by its name, as `block_bytes` to `8192`.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such option or the value is none for it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| Error::invalid(format!("expected a number, found {value:?}")))
        };
        let flag = || {
            value
                .parse::<bool>()
                .map_err(|_| Error::invalid(format!("expected true or false, found {value:?}")))
        };
        match name {
            "store" => self.store = Chosen(Some(Store::from_text(value)?)),
            "level_base_bytes" => self.level_base_bytes = number()?,
            "level_multiplier" => self.level_multiplier = number()?,
            "block_bytes" => self.block_bytes = number()?,
            "partition_bytes" => self.partition_bytes = number()?,
            "delta_limit_percent" => self.delta_limit_percent = number()?,
            "min_conversion_bytes" => self.min_conversion_bytes = number()?,
            "over_provision_percent" => self.over_provision_percent = number()?,
            "lsm_ratio_percent" => self.lsm_ratio_percent = number()?,
            "separate_at" => self.separate_at = number()?,
            "inline_limit" => self.inline_limit = number()?,
            "settle_for_reads" => self.settle_for_reads = flag()?,
            "move_values" => self.move_values = flag()?,
            "lsm_index" => self.lsm_index = IndexKind::from_text(value)?,
            "settled_index" => self.settled_index = IndexKind::from_text(value)?,
            "lsm_compression" => self.lsm_compression = Compression::from_text(value)?,
            "settled_compression" => self.settled_compression = Compression::from_text(value)?,
            "lsm_filter" => self.lsm_filter = filter_from_text(value)?,
            "settled_filter" => self.settled_filter = filter_from_text(value)?,
            "attach_filters" => self.attach_filters = flag()?,
            _ => return Err(Error::invalid("there is no such option")),
        }
        Ok(())
    }
}

/// How no filter is written.
const NO_FILTER: &str = "none";

fn filter_text(kind: Option<FilterKind>) -> String {
    kind.map_or(NO_FILTER.to_owned(), |kind| kind.to_string())
}

fn filter_from_text(text: &str) -> Result<Option<FilterKind>> {
    if text == NO_FILTER {
        return Ok(None);
    }
    let kind = FilterKind::from_text(text);
    kind.map(Some).map_err(|e| Error::invalid(format!("{e}; or {NO_FILTER}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_the_module_page_are_what_is_written() {
        let mut options = KeyspaceOptions::default();
        options.set("settled_compression", "zstd:7").unwrap();
        let written = options.encode();
        let rows: Vec<_> =
            written.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        println!("//! {}", rows.join("\n//! "));
        let page = include_str!("persisted.rs").lines().map_while(|line| line.strip_prefix("//!"));
        let shown = page.skip_while(|line| *line != " ```text").skip(1);
        let shown: Vec<_> = shown.map(str::trim).take_while(|line| *line != "```").collect();
        assert_eq!(shown, rows);
        let read = KeyspaceOptions::decode(&written).unwrap();
        assert_eq!(read.encode(), written);
    }
}
