//! Gzipped data, member by member.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The first bytes of gzipped data.
pub(crate) const GZIP: &[u8] = &[0x1f, 0x8b];

/// Unzips all members. Other data after the last member is an error with a reason of its own.
pub(crate) struct Gunzip<R> {
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gunzip<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { member: Some(GzDecoder::new(source)) }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let mut rest = self.member.take().expect("there is a member").into_inner();
            // Zeros are padding, as in gzip.
            while let [0, ..] = rest.fill_buf()? {
                let zeros = rest.fill_buf()?.iter().take_while(|&&byte| byte == 0).count();
                rest.consume(zeros);
            }
            match rest.fill_buf()? {
                [] => return Ok(0),
                [0x1f, ..] => self.member = Some(GzDecoder::new(rest)),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "something else follows it")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        Gunzip::new(bytes).read_to_end(&mut plain).map(|_| plain)
    }

    #[test]
    fn members_and_padding_are_read_and_garbage_is_named() {
        let both = [zipped(b"one"), zipped(b"two"), vec![0; 700]].concat();
        assert_eq!(unzip(&both).unwrap(), b"onetwo");
        let error = unzip(&[zipped(b"one"), b"garbage".to_vec()].concat()).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidData, "something else follows it".into()));
        assert_eq!(unzip(&zipped(b"one")[..12]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
