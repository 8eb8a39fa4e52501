//! The battery every codec passes: what comes back is what went in, whatever went before; what is
//! damaged, cut or of another length is refused.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::format::checksum::mix;

fn codecs() -> impl Iterator<Item = (Compression, Box<dyn Codec>)> {
    let levels = [1, 19].map(|level| Compression::Zstd { level });
    let levels = levels.into_iter().filter(|level| level.check().is_ok());
    let all = Compression::ALL.iter().copied().chain(levels);
    all.filter_map(|how| Some((how, how.codec()?)))
}

/// Text-like, noisy, constant; short, long, longer than a 16-bit table serves.
fn samples() -> Vec<Vec<u8>> {
    let noise = |length: u64| -> Vec<u8> {
        (0..length.div_ceil(8)).flat_map(|i| mix(i).to_le_bytes()).take(length as usize).collect()
    };
    let text = |lines: u64| -> Vec<u8> {
        (0..lines)
            .flat_map(|i| format!("user{:05} visited page {}\n", mix(i) % 999, i).into_bytes())
            .collect()
    };
    let mut samples: Vec<Vec<u8>> = (0..40).map(|length| vec![7; length]).collect();
    samples.extend([text(3), text(100), text(4000), vec![0; 4096], vec![0; 1 << 20]]);
    samples.extend([noise(100), noise(4096), noise(70_000)]);
    samples
        .extend([[noise(2000), vec![1; 2000]].concat(), [vec![1; 70_000], noise(70_000)].concat()]);
    // Short matches at the very end, and lengths about which the table changes.
    let few = |length: u64| (0..length).map(|i| (mix(length << 20 | i) % 3) as u8).collect();
    samples.extend((0..200).chain(65_534..65_538).map(few));
    samples
}

#[test]
fn what_comes_back_is_what_went_in() {
    for (how, mut codec) in codecs() {
        let readers = Codecs::default();
        let mut shrunk = 0;
        for raw in samples() {
            let mut out = b"before".to_vec();
            // Room for any expansion: noise is compressed too, to something longer.
            assert!(codec.compress(&raw, 2 * raw.len() + 100, &mut out), "{how}: {}", raw.len());
            assert_eq!(&out[..6], b"before", "{how}");
            let stored = &out[6..];
            shrunk += u32::from(stored.len() < raw.len());
            assert!(raw.len() <= MOST_EXPANSION * stored.len(), "{how}: {} bytes", raw.len());
            let mut found = vec![0xaa; raw.len()];
            readers.decompress(codec.mark(), stored, &mut found).unwrap();
            assert_eq!(found, raw, "{how}");
            let mut exact = Vec::new();
            assert!(
                codec.compress(&raw, stored.len(), &mut exact),
                "{how}: as much room as it needs"
            );
            assert_eq!(exact, stored, "{how}: the same bytes each time");
            let before = out.clone();
            assert!(!codec.compress(&raw, stored.len() - 1, &mut out), "{how}: a byte too little");
            assert_eq!(out, before, "{how}");
        }
        assert!(shrunk >= 20, "{how}: {shrunk}");
    }
}

#[test]
fn damaged_cut_and_mismeasured_bytes_are_refused_or_fill_what_was_asked_for() {
    for (how, mut codec) in codecs() {
        let readers = Codecs::default();
        let raw = samples().swap_remove(41);
        let mut stored = Vec::new();
        assert!(codec.compress(&raw, raw.len(), &mut stored), "{how}");
        let decompress = |stored: &[u8], length: usize| {
            let mut found = vec![0; length];
            let done = readers.decompress(codec.mark(), stored, &mut found);
            done.map(|()| found)
        };
        for length in [0, 1, raw.len() - 1, raw.len() + 1, 2 * raw.len()] {
            let error = decompress(&stored, length).unwrap_err();
            assert!(
                error.is_corruption() && error.to_string().contains(how.name()),
                "{how}: {error}"
            );
        }
        for at in 0..stored.len() {
            assert!(decompress(&stored[..at], raw.len()).is_err(), "{how}: cut at {at}");
            for flip in [1, 0x80, 0xff] {
                let mut bad = stored.clone();
                bad[at] ^= flip;
                // The block's checksum stands before this: a flip may pass here, as other bytes.
                let _ = decompress(&bad, raw.len());
            }
        }
        assert_eq!(decompress(&stored, raw.len()).unwrap(), raw, "{how}: after all that");
    }
}

/// LZ4's block format, decoded as its document says, with plain loops: the oracle.
fn naive_lz4(stored: &[u8]) -> Vec<u8> {
    let (mut at, mut out) = (0, Vec::new());
    let length = |nibble: u8, at: &mut usize| {
        let mut length = usize::from(nibble);
        let mut goes_on = nibble == 15;
        while goes_on {
            length += usize::from(stored[*at]);
            goes_on = stored[*at] == 255;
            *at += 1;
        }
        length
    };
    loop {
        let token = stored[at];
        at += 1;
        let literals = length(token >> 4, &mut at);
        out.extend_from_slice(&stored[at..at + literals]);
        at += literals;
        if at == stored.len() {
            return out;
        }
        let offset = usize::from(u16::from_le_bytes([stored[at], stored[at + 1]]));
        at += 2;
        for _ in 0..length(token & 15, &mut at) + 4 {
            out.push(out[out.len() - offset]);
        }
    }
}

#[test]
fn lz4_is_what_its_document_says() {
    let mut codec = Compression::Lz4.codec().unwrap();
    for raw in samples() {
        let mut stored = Vec::new();
        assert!(codec.compress(&raw, 2 * raw.len() + 100, &mut stored));
        assert_eq!(naive_lz4(&stored), raw);
    }
}

#[test]
fn idle_codecs_are_few_and_used_again() {
    let readers = Codecs::default();
    for (how, mut codec) in codecs() {
        let mut stored = Vec::new();
        assert!(codec.compress(&[1; 1000], 1000, &mut stored), "{how}");
        let mark = codec.mark();
        let decompress = || readers.decompress(mark, &stored, &mut [0; 1000]).unwrap();
        decompress();
        let idle = readers.idle().len();
        decompress();
        assert_eq!(readers.idle().len(), idle, "{how}");
        std::thread::scope(|scope| {
            let _ = [0; 3 * KEPT_CODECS].map(|_| scope.spawn(decompress));
        });
        assert!(readers.idle().len() <= KEPT_CODECS, "{how}");
    }
    assert_eq!(readers.decompress(9, &[], &mut []).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(readers.decompress(RAW, &[], &mut []).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn names_and_levels_round_trip() {
    for how in Compression::ALL {
        assert_eq!(Compression::from_text(&how.to_string()).unwrap(), *how);
        assert_eq!(Compression::from_text(how.name()).unwrap(), *how);
    }
    for bad in ["", "zip", "lz4:1", "zstd:", "zstd:0", "zstd:20", "zstd:300", "zstd:x", "none:1"] {
        let error = Compression::from_text(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bad}");
        assert!(error.to_string().contains("zstd"), "{bad}: {error}");
    }
}
