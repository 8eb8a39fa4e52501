//! The names of files that have a number: what they are, a hyphen, at least eight digits.
//!
//! `log-00000012`, `table-00000345`, `manifest-00000001`.

/// Larger numbers are never given out: there is always a next one.
const MAX_FILE_NUMBER: u64 = 1 << 48;

/// The name of file `number` of what `kind` says.
pub fn file_name(kind: &str, number: u64) -> String {
    format!("{kind}-{number:08}")
}

/// The number of the file, if it is one of ours: a stranger's `log-7` is not, nor a number that was
/// never given out.
pub fn file_number(kind: &str, name: &str) -> Option<u64> {
    let number = name.strip_prefix(kind)?.strip_prefix('-')?.parse().ok()?;
    (number <= MAX_FILE_NUMBER && file_name(kind, number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{file_name, file_number};

    #[test]
    fn only_names_that_we_give_are_ours() {
        for number in [0, 7, 99_999_999, 100_000_000, 1 << 48] {
            assert_eq!(file_number("log", &file_name("log", number)), Some(number));
        }
        for name in ["log-7", "log-+0000007", "log-", "log00000007", "table-00000007"] {
            assert_eq!(file_number("log", name), None, "{name}");
        }
        assert_eq!(file_number("log", "log-18446744073709551615"), None);
    }
}
