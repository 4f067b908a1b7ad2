//! A second free of an address names the allocation that was freed there last, no matter who freed it and how many
//! operations other streams have done.

use millpond::{Buffer, Device, HostConfig, Pool, Result, Stream};

fn named(stream: &Stream, pool: &Pool, name: &str, bytes: usize) -> Buffer<u8> {
    let buffer = stream.alloc::<u8>(pool, bytes).unwrap();
    buffer.set_name(name);
    buffer
}

fn says(refused: Result<()>) -> String {
    refused.unwrap_err().report().to_string()
}

#[test]
fn a_second_free_names_what_was_freed_there_last() {
    for by_host in [true, false] {
        let device = Device::host(HostConfig::default()).unwrap();
        let (stream, other, pool) = (device.stream().unwrap(), device.stream().unwrap(), device.default_pool());
        let (old, beside) = (named(&stream, &pool, "old", 512), named(&stream, &pool, "beside", 512));
        let address = old.address();
        // The entry that was freed last is reused next. It is not the one of `old`.
        stream.free(old).unwrap();
        stream.free(beside).unwrap();
        stream.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        let new = named(&stream, &pool, "new", 4096);
        assert_eq!(new.address(), address, "there is nothing to tell apart");
        stream.synchronize().unwrap();
        assert_eq!(new.into_address(), address);
        let said = match by_host {
            true => {
                device.free_address(address).unwrap();
                says(device.free_address(address))
            }
            false => {
                other.wait(&stream.record().unwrap()).unwrap();
                other.free_address(address).unwrap();
                other.synchronize().unwrap();
                pool.trim_to(0).unwrap();
                says(other.free_address(address))
            }
        };
        assert!(said.contains("`new`") && !said.contains("`old`"), "{said}");
    }
}
