//! Entries that wait for their values, which are read together; and what becomes of values that cannot be read.

use super::Output;
use crate::error::Result;
use crate::format::entry::{Kind, SequenceNumber};
use crate::format::value::ValuePointer;
use crate::slice::Slice;
use crate::sstable::sought::Reads;

/// Entries that wait for values to be read, in key order. Their keys and payloads stand back to back.
#[derive(Default)]
pub(super) struct Waiting {
    bytes: Vec<u8>,
    entries: Vec<WaitingEntry>,
    /// What they will take in blocks, about.
    pub(super) data_bytes: u64,
}

struct WaitingEntry {
    key_start: usize,
    payload_start: usize,
    end: usize,
    kind: Kind,
    sequence: SequenceNumber,
    /// The value to read, if its place is not to be copied.
    load: Option<ValuePointer>,
}

impl Waiting {
    pub(super) fn push(
        &mut self,
        key: &[u8],
        kind: (Kind, SequenceNumber),
        payload: &[u8],
        load: Option<ValuePointer>,
        separate_at: u64,
    ) {
        let key_start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let payload_start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        let end = self.bytes.len();
        let (kind, sequence) = kind;
        // Of one that is to stand apart again its place alone is in a block.
        let comes = load.filter(|pointer| pointer.length < separate_at);
        let in_block = comes.map_or(payload.len() as u64, |pointer| pointer.length);
        self.data_bytes += key.len() as u64 + in_block;
        self.entries.push(WaitingEntry { key_start, payload_start, end, kind, sequence, load });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn key(&self, entry: &WaitingEntry) -> &[u8] {
        &self.bytes[entry.key_start..entry.payload_start]
    }
}

impl Output {
    /// Reads the values that entries wait for, and adds the entries.
    pub(super) fn load_waiting(&mut self) -> Result<()> {
        if self.waiting.entries.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let wanted = waiting.entries.iter().filter_map(|e| Some((waiting.key(e), e.load?)));
        let wanted: Vec<_> = wanted.collect();
        // Behind these.
        let to_here = self.data_bytes() + waiting.data_bytes;
        let times = self.expected_bytes.saturating_sub(to_here) / waiting.data_bytes.max(1);
        let sources = &self.sources;
        let values = self.ahead.load(&wanted, |id| sources.find(id), times, &Reads::default());
        let values: Vec<Option<Slice>> = match values {
            Ok(values) => values.into_iter().map(Some).collect(),
            Err(e) if e.is_corruption() && self.leaves_unread => self.load_each(&wanted)?,
            Err(e) => return Err(e),
        };
        let mut values = values.into_iter();
        for entry in &waiting.entries {
            let (key, sequence) = (waiting.key(entry), entry.sequence);
            match entry.load.and_then(|_| values.next().flatten()) {
                Some(value) => self.add(key, Kind::Value, sequence, &value)?,
                None => {
                    let payload = &waiting.bytes[entry.payload_start..entry.end];
                    self.add(key, entry.kind, sequence, payload)?;
                }
            }
        }
        Ok(())
    }

    /// Whether it is known that a value is not there: its segment's file is missing, or was cut before its end.
    pub(super) fn lacks(&mut self, pointer: &ValuePointer) -> bool {
        let segment = self.sources.get(pointer.segment);
        let damage = segment.and_then(|segment| segment.lacks(pointer.end()));
        if let Some(damage) = damage {
            self.unread.get_or_insert_with(|| damage.clone());
        }
        damage.is_some()
    }

    /// Reads the values that are `wanted` one by one; those that are damaged are left where they are.
    fn load_each(&mut self, wanted: &[(&[u8], ValuePointer)]) -> Result<Vec<Option<Slice>>> {
        let mut values = Vec::with_capacity(wanted.len());
        for &(key, pointer) in wanted {
            let segment = self.sources.find(pointer.segment)?;
            values.push(match segment.load(key, pointer, &Reads::default()) {
                Ok(value) => Some(value),
                Err(e) if e.is_corruption() => {
                    segment.note_unreadable();
                    self.emptied.insert(pointer.segment, None);
                    self.unread.get_or_insert(e);
                    None
                }
                Err(e) => return Err(e),
            });
        }
        Ok(values)
    }
}
