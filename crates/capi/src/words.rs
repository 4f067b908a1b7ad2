//! C's names in the library's texts, in place of Rust's.

/// Replacements: C's calls and names for Rust's. Text about things that C does not have is removed.
const IN_C: [(&str, &str); 19] = [
    ("`pool.grant(&device, PeerAccess::Read)`", "`millpond_pool_set_access` to read"),
    ("`pool.grant(&device, PeerAccess::ReadWrite)`", "`millpond_pool_set_access` to read and write"),
    ("for no limit leave it out", "0 means no limit"),
    (", or make these graphs with symbolic addresses", ""),
    (", or make the graph with symbolic addresses", ""),
    (", or build the graph with symbolic addresses", ""),
    (": let it leave the capture as an alloc node (`into_alloc_node`), and take it from the launch (`take`)", ""),
    ("is_idle while", "a query while"),
    ("copy_to_host while", "a copy to the host while"),
    ("copy_to_host: the host", "the host"),
    ("copy_from_host: the host", "the host"),
    ("`copy_to_host` cannot", "`millpond_memcpy_dtoh` cannot"),
    ("`upload` cannot", "`millpond_graph_upload` cannot"),
    ("`enqueue` cannot", "`millpond_declare` cannot"),
    ("closures: use `enqueue`", "C functions: launch a kernel of its own, after `millpond_declare`"),
    ("its buffers can still be dropped", "its handles can still be destroyed"),
    ("this view's allocation", "this allocation"),
    ("by a name from before", "by a pointer from before"),
    ("use the name that its", "use the pointer that its"),
];

/// Returns a text of the library as C programs get it.
pub(crate) fn in_c(text: &str) -> String {
    IN_C.iter().fold(text.to_owned(), |text, (rust, c)| text.replace(rust, c))
}
