//! Plans byte-separator chunks: each block ends at the gap whose separator costs least.

use super::strings::RESTART;
use super::windows::Buffered;
use super::{Chunk, Kind, common_prefix};
use crate::bytes::Writer;
use crate::monotone::bits::{BitWriter, bits_of};

/// A block may end in the last quarter of its size.
const SLACK: u64 = 4;
/// What an empty block would cost besides, in bytes: its own separator and end offset. A block that
/// is a tenth empty costs a tenth of that.
const BLOCK_COST: f64 = 10.0;

/// The plan for the next chunk; none where there are no inner separators.
pub(super) fn plan(buffered: &Buffered<'_>) -> Option<Chunk> {
    let firsts = buffered.firsts(SLACK);
    let mut inner: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut start = 0;
    while inner.len() + 1 < buffered.blocks && !buffered.is_open(start) {
        let previous = match inner.last() {
            Some((_, separator)) if inner.len() % RESTART != 0 => separator.as_slice(),
            _ => &[],
        };
        let gaps = firsts[start] as usize..=buffered.last[start] as usize;
        let cost = |gap: usize| {
            let (low, high) = (buffered.keys[gap - 1], buffered.keys[gap]);
            let length = common_prefix(low, high) + 1;
            let suffix = length - common_prefix(previous, &high[..length]);
            let used = buffered.sums[gap] - buffered.sums[start];
            let empty = 1.0 - (used as f64 / buffered.max as f64).min(1.0);
            suffix as f64 + BLOCK_COST * empty
        };
        let costs = gaps.rev().map(|gap| (gap, cost(gap)));
        let (gap, _) = costs.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let (low, high) = (buffered.keys[gap - 1], buffered.keys[gap]);
        inner.push((gap, high[..=common_prefix(low, high)].to_vec()));
        start = gap;
    }
    if buffered.is_open(start) && !buffered.end_of_table {
        inner.pop();
    }
    let (first, last) = (&inner.first()?.1, &inner.last()?.1);
    // Not all of the first: every entry has a byte of its own.
    let prefix = first[..common_prefix(first, last).min(first.len() - 1)].to_vec();
    let mut body = Vec::new();
    Chunk::begin(&mut body, Kind::Strings, buffered.head, &prefix, false);
    encode(&mut body, prefix.len(), &inner);
    Some(Chunk::finish(buffered, inner, &firsts, body))
}

fn encode(body: &mut Vec<u8>, prefix_bytes: usize, inner: &[(usize, Vec<u8>)]) {
    let mut entries = Vec::new();
    let mut restarts = Vec::new();
    let mut previous: &[u8] = &[];
    for (i, (_, separator)) in inner.iter().enumerate() {
        let separator = &separator[prefix_bytes..];
        let mut shared = common_prefix(previous, separator);
        if i % RESTART == 0 {
            shared = 0;
            restarts.push(entries.len() as u64);
        }
        let suffix = &separator[shared..];
        let mut writer = Writer::new(&mut entries);
        let length = suffix.len() - 1;
        writer.u8((shared.min(31) << 3 | length.min(7)) as u8);
        if shared >= 31 {
            writer.varint(shared as u64 - 31);
        }
        if length >= 7 {
            writer.varint(length as u64 - 7);
        }
        entries.extend_from_slice(suffix);
        previous = separator;
    }
    let width = restarts.last().map_or(0, |&offset| bits_of(offset));
    let mut offsets = BitWriter::default();
    for &offset in &restarts[1..] {
        offsets.push(offset, width);
    }
    let mut writer = Writer::new(body);
    writer.u8(width as u8);
    writer.varint(entries.len() as u64);
    body.extend(offsets.finish());
    body.extend(entries);
}
