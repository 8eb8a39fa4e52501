//! Plans and encodes byte-separator chunks.
//!
//! What front coding makes of a separator is what it does not share with the one before: the
//! separators' trie is stored. The plan is the cheapest path over block ends, bits for each byte of
//! entries: forward over all entries, each reached from every start whose window holds it. All it
//! needs is `shared[j]`, how many bytes keys `j - 1` and `j` share: the separator in that gap has one
//! byte more, and two separators share the least of these numbers from one to the other.

use std::collections::VecDeque;

use super::strings::RESTART;
use super::windows::{Buffered, rounded_separator};
use super::{Chunk, Cut, Inner, Kind, Separator, common_prefix};
use crate::monotone::bits::{BitWriter, bits_of, mask};

/// A block may end in the last quarter of its size; where that is more than some ten entries, a
/// smaller part gives as short separators, fuller blocks, and less to plan.
const SLACK: u64 = 4;
/// Entries in a block that a quarter of is choice enough.
const FEW: u64 = 32;
/// What a character costs, about, in bits.
const CHARACTER: u64 = 6;
/// What a block costs besides: its entry's lengths, its end offset.
const BLOCK: u64 = 16;
/// What a chunk costs besides: where it begins, its header.
const CHUNK: u64 = 80;
/// What a byte of a chunk's head costs.
const HEAD_CHARACTER: u64 = 8;

/// The cheapest way to an entry.
#[derive(Clone, Copy)]
struct Path {
    bits: u64,
    /// Blocks on the way, and where the last one begins.
    blocks: u32,
    from: u32,
}

const NO_PATH: Path = Path { bits: u64::MAX, blocks: 0, from: 0 };

/// The plan for the next chunk; none where there are no inner separators.
pub(super) fn plan(buffered: &Buffered<'_>) -> Option<Chunk> {
    let reach = buffered.reach();
    let entries = (reach / buffered.blocks) as u64;
    let slack = SLACK * (entries / FEW).max(1);
    let pairs = buffered.keys[..reach].windows(2);
    let mut shared = vec![common_prefix(buffered.head, buffered.keys[0])];
    shared.extend(pairs.map(|pair| common_prefix(pair[0], pair[1])));
    let mut paths = vec![NO_PATH; reach + 1];
    paths[0] = Path { bits: 0, blocks: 0, from: 0 };
    let (mut best, mut best_cost) = (0, f64::INFINITY);
    let mut inside = SlidingLeast::default();
    let mut entries = 0;
    for start in 0..reach {
        let Path { bits, blocks, .. } = paths[start];
        if bits == u64::MAX || blocks as usize >= buffered.blocks {
            continue;
        }
        let last = buffered.last(start, start + entries);
        let first = buffered.first(start, last, slack);
        entries = last - start;
        let mut offer = |end: usize, suffix: usize, head: usize| {
            let close = bits + BLOCK + CHUNK + HEAD_CHARACTER * head as u64;
            let cost = close as f64 / buffered.sums[end].max(1) as f64;
            let bits = bits + BLOCK + CHARACTER * suffix as u64;
            let path = &mut paths[end];
            if bits < path.bits {
                *path = Path { bits, blocks: blocks + 1, from: start as u32 };
                if cost <= best_cost {
                    (best, best_cost) = (end, cost);
                }
            }
        };
        if buffered.is_open(start) {
            if buffered.end_of_table {
                offer(last, 0, 0);
            }
            continue;
        }
        // What the separator below the block shares with that above.
        let below = if start == 0 { buffered.head.len() } else { shared[start] + 1 };
        let mut common = inside.least(&shared, start + 1, first).min(below);
        for (gap, &here) in shared.iter().enumerate().take(last + 1).skip(first) {
            common = common.min(here);
            offer(gap, here + 1 - common, here + 1);
        }
    }
    finish(buffered, &paths, best)
}

/// The least number in a window whose two ends only move on: the places of those that are less than
/// all behind them.
#[derive(Default)]
struct SlidingLeast {
    places: VecDeque<usize>,
    end: usize,
}

impl SlidingLeast {
    /// The least of `numbers[from..to]`; the greatest `usize` if that is empty.
    fn least(&mut self, numbers: &[usize], from: usize, to: usize) -> usize {
        for place in self.end.max(from)..to {
            while self.places.back().is_some_and(|&back| numbers[back] >= numbers[place]) {
                self.places.pop_back();
            }
            self.places.push_back(place);
        }
        self.end = self.end.max(to);
        while self.places.front().is_some_and(|&front| front < from) {
            self.places.pop_front();
        }
        self.places.front().map_or(usize::MAX, |&front| numbers[front])
    }
}

/// The chunk of the blocks on the way to `end`.
fn finish(buffered: &Buffered<'_>, paths: &[Path], end: usize) -> Option<Chunk> {
    let mut ends = vec![end];
    while let Some(&end) = ends.last().filter(|&&end| paths[end].from > 0) {
        ends.push(paths[end].from as usize);
    }
    if ends.len() < 2 {
        return None;
    }
    let cut = |&end: &usize| {
        let Some(high) = buffered.keys.get(end) else {
            return Cut { end, separator: Separator::default() };
        };
        let low = buffered.keys[end - 1];
        Cut { end, separator: high[..=common_prefix(low, high)].into() }
    };
    let mut cuts: Vec<Cut> = ends.iter().rev().map(cut).collect();
    let inner = cuts[..cuts.len() - 1].iter().map(|cut| cut.separator.to_vec()).collect();
    if let Some(high) = buffered.keys.get(end) {
        cuts.last_mut()?.separator = rounded_separator(buffered.keys[end - 1], high);
    }
    let separators = Inner::Strings(inner);
    Some(Chunk { cuts, inner: separators })
}

/// The body of a chunk of these separators, at least one.
pub(super) fn encode(head: &[u8], separators: &[Vec<u8>], alphabet: &Alphabet) -> Vec<u8> {
    let (first, last) = (&separators[0], &separators[separators.len() - 1]);
    let prefix = &first[..common_prefix(first, last)];
    let mut body = Vec::new();
    let rest = Chunk::begin(&mut body, Kind::Strings, head, prefix, false);
    let head = if rest == 0 { &head[prefix.len()..] } else { &[] };
    let separators: Vec<&[u8]> = separators.iter().map(|s| &s[prefix.len()..]).collect();
    let shared = |(i, separator): (usize, &&[u8])| {
        let built_on = match i {
            0 => head,
            _ if i % RESTART == 0 => separators[i - RESTART],
            _ => separators[i - 1],
        };
        common_prefix(built_on, separator)
    };
    let shared: Vec<usize> = separators.iter().enumerate().map(shared).collect();
    let suffixes: Vec<&[u8]> = separators.iter().zip(&shared).map(|(s, &n)| &s[n..]).collect();
    let units = |bits: u32| suffixes.iter().map(move |s| alphabet.units(s, bits));
    let all_bits = |bits: &u32| units(*bits).map(|units| units * *bits as usize).sum::<usize>();
    let unit_bits = (4..=8).min_by_key(all_bits).unwrap_or(8);
    let shared_bits = number_bits(&shared);
    let units: Vec<usize> = units(unit_bits).collect();
    let units_bits = number_bits(&units);

    let mut entries = BitWriter::default();
    let mut restarts = Vec::new();
    for (i, suffix) in suffixes.iter().enumerate() {
        if i % RESTART == 0 {
            restarts.push(entries.len() as u64);
        }
        push_number(&mut entries, shared[i], shared_bits);
        push_number(&mut entries, units[i], units_bits);
        alphabet.push(&mut entries, suffix, unit_bits);
    }
    let offset_bits = restarts.last().map_or(0, |&last| bits_of(last));
    let mut bits = BitWriter::default();
    for &restart in &restarts[1..] {
        bits.push(restart, offset_bits);
    }
    bits.append(entries);
    body.extend([unit_bits as u8, shared_bits as u8, units_bits as u8, offset_bits as u8]);
    body.extend(bits.finish());
    body
}

/// The width that makes all these numbers cheapest.
fn number_bits(numbers: &[usize]) -> u32 {
    let cost = |width: &u32| {
        let long = numbers.iter().filter(|&&number| number as u64 >= mask(*width)).count();
        numbers.len() * *width as usize + 32 * long
    };
    (1..=16).min_by_key(cost).unwrap_or(16)
}

fn push_number(bits: &mut BitWriter, number: usize, width: u32) {
    let most = mask(width);
    bits.push(most.min(number as u64), width);
    if number as u64 >= most {
        bits.push(number as u64 - most, 32);
    }
}

/// The bytes that separators consist of, the most frequent first.
#[derive(Debug)]
pub(super) struct Alphabet {
    pub bytes: Vec<u8>,
    /// Each byte's place, 255 for those without.
    places: [u8; 256],
}

impl Alphabet {
    /// The alphabet of what front coding leaves of these separators.
    pub fn of<'a>(chunks: impl Iterator<Item = &'a [Vec<u8>]>) -> Self {
        let mut counts = [0u64; 256];
        for separators in chunks {
            for pair in separators.windows(2) {
                for &byte in &pair[1][common_prefix(&pair[0], &pair[1])..] {
                    counts[usize::from(byte)] += 1;
                }
            }
        }
        let mut bytes: Vec<u8> = (0..=255).filter(|&byte| counts[usize::from(byte)] > 0).collect();
        bytes.sort_by_key(|&byte| std::cmp::Reverse(counts[usize::from(byte)]));
        bytes.truncate(127);
        let mut places = [255; 256];
        for (place, &byte) in bytes.iter().enumerate() {
            places[usize::from(byte)] = place as u8;
        }
        Self { bytes, places }
    }

    fn is_escaped(&self, byte: u8, bits: u32) -> bool {
        u64::from(self.places[usize::from(byte)]) >= mask(bits)
    }

    /// How many units a string takes.
    fn units(&self, string: &[u8], bits: u32) -> usize {
        if bits == 8 {
            return string.len();
        }
        let escaped = string.iter().filter(|&&byte| self.is_escaped(byte, bits)).count();
        string.len() + 2 * escaped
    }

    fn push(&self, out: &mut BitWriter, string: &[u8], bits: u32) {
        for &byte in string {
            if bits == 8 {
                out.push(byte.into(), 8);
            } else if self.is_escaped(byte, bits) {
                out.push(mask(bits), bits);
                out.push(byte.into(), 2 * bits);
            } else {
                out.push(self.places[usize::from(byte)].into(), bits);
            }
        }
    }
}
