//! CRC-32 (ISO-HDLC), so that a mistyped key is refused without asking the store.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "the index is a byte")]
        let mut row = at as u32;
        let mut bit = 0;
        while bit < 8 {
            row = if row & 1 == 1 { 0xEDB8_8320 ^ (row >> 1) } else { row >> 1 };
            bit += 1;
        }
        table[at] = row;
        at += 1;
    }
    table
}

/// The checksum of a text.
pub(crate) fn crc32(text: &str) -> u32 {
    let step = |sum: u32, byte: u8| (sum >> 8) ^ TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)];
    !text.bytes().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32("123456789"), 0xCBF4_3926);
        assert_eq!(crc32(""), 0);
    }
}
