//! The shapes of keys that random workloads draw: what is right for short text need not be for others.

/// What the keys of a workload look like. Each numbers its keys in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// `key000`, `key001` and so on.
    Text,
    /// The empty key, and strings of zeros and of 0xff, many the beginnings of their neighbours.
    Nested,
    /// Eight bytes, big-endian: eight numbers close together, then a wide gap. The first is 0.
    Integers,
    /// Three of ten neighbours differ in their last byte alone, after hundreds or thousands of bytes;
    /// one of all is as long as a key may be.
    Long,
}

/// The most bytes of a key.
pub const MOST_BYTES: usize = 64 << 10;
/// The one of [`Keys::Long`] that has [`MOST_BYTES`]. (With more of them the batteries take minutes.)
const LONGEST: u64 = 44;

/// Numbers below this have a key of their own.
const NUMBERS: u64 = 1000;

impl Keys {
    pub const ALL: [Keys; 4] = [Keys::Text, Keys::Nested, Keys::Integers, Keys::Long];

    /// Those of a seed (or of the number of a configuration): four in a row have all shapes.
    pub fn of(seed: u64) -> Keys {
        Keys::ALL[(seed % 4) as usize]
    }

    /// The key of that number; a larger number has a larger key.
    pub fn key(self, number: u64) -> Vec<u8> {
        assert!(number < NUMBERS, "there are no more keys");
        match self {
            Keys::Text => format!("key{number:03}").into_bytes(),
            Keys::Nested => nested(number),
            Keys::Integers => integers(number),
            Keys::Long => long(number),
        }
    }

    /// What is right behind the key of that number, a letter longer; if no key may be, that key.
    pub fn behind(self, number: u64) -> Vec<u8> {
        let mut key = self.key(number);
        if key.len() < MOST_BYTES {
            key.push(b'!');
        }
        key
    }

    /// The first bytes of the key of that number, and of some others.
    pub fn prefix(self, number: u64) -> Vec<u8> {
        let mut key = self.key(number);
        key.pop();
        key
    }
}

/// After each run of 0xff the tree of fifteen nodes below a zero: paths of zeros to the left and
/// of 0xff to the right, longer with each level; parents before children.
fn nested(number: u64) -> Vec<u8> {
    let mut key = vec![0xff; number as usize / 16 * 3];
    let (mut rest, mut below, mut length) = (number % 16, 15, 1);
    while rest > 0 {
        let half = if length == 1 { below } else { below / 2 };
        let is_right = rest > half;
        key.resize(key.len() + length, if is_right { 0xff } else { 0 });
        rest -= 1 + if is_right { half } else { 0 };
        (below, length) = (half - 1, length + 1);
    }
    key
}

/// Eight numbers close together, then a gap of a tenth of all; after the ninth gap no more.
fn integers(number: u64) -> Vec<u8> {
    let cluster = (number / 8).min(9);
    (cluster * (u64::MAX / 10) + number - cluster * 8).to_be_bytes().to_vec()
}

fn long(number: u64) -> Vec<u8> {
    let (decade, digit) = (number / 10, b'0' + (number % 10) as u8);
    let mut key = format!("long{decade:02}").into_bytes();
    if (b'3'..=b'5').contains(&digit) {
        let bytes = if number == LONGEST { MOST_BYTES } else { 500 << (decade % 4) };
        key.resize(bytes - 1, b'3');
    }
    key.push(digit);
    key
}

#[test]
fn larger_numbers_have_larger_keys() {
    for keys in Keys::ALL {
        let all: Vec<_> = (0..NUMBERS).map(|number| keys.key(number)).collect();
        assert!(all.is_sorted_by(|a, b| a < b), "{keys:?}");
        assert!(all.iter().all(|key| key.len() <= MOST_BYTES), "{keys:?}");
    }
    assert_eq!(Keys::Nested.key(0), b"");
    assert_eq!(Keys::Nested.key(2), [0, 0, 0]);
    assert_eq!(Keys::Nested.key(31), [&[0xff; 3][..], &[0], &[0xff; 2 + 3 + 4]].concat());
    assert_eq!(Keys::Nested.key(32), [0xff; 6]);
    assert_eq!(Keys::Integers.key(9), (u64::MAX / 10 + 1).to_be_bytes());
    assert_eq!([43, 44, 45].map(|number| Keys::Long.key(number).len()), [500, MOST_BYTES, 500]);
}
