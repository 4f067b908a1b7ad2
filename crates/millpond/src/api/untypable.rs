//! Programs that the type system refuses: they must not compile. Beside each is one that differs only in that point and
//! must compile.
//!
//! Only the documentation tests read this file; it is part of no build.

/// A buffer cannot be used after it was freed.
/// ```compile_fail,E0382
/// # fn it(stream: &millpond::Stream, pool: &millpond::Pool) -> millpond::Result<()> {
/// let x = stream.alloc::<u32>(pool, 16)?;
/// stream.free(x)?;
/// stream.launch(x.read(), |_| ())
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, pool: &millpond::Pool) -> millpond::Result<()> {
/// let x = stream.alloc::<u32>(pool, 16)?;
/// stream.launch(x.read(), |_| ())?;
/// stream.free(x)?;
/// # Ok(())
/// # }
/// ```
pub struct UseAfterFree;

/// A buffer cannot be freed twice, unless the first free was refused and gave it back.
/// ```compile_fail,E0382
/// # fn it(left: &millpond::Stream, right: &millpond::Stream, x: millpond::Buffer<u32>) {
/// let _ = left.free(x);
/// let _ = right.free(x);
/// # }
/// ```
/// ```
/// # fn it(left: &millpond::Stream, right: &millpond::Stream, x: millpond::Buffer<u32>) {
/// if let Err(refused) = left.free(x) {
///     let _ = right.free(refused.buffer);
/// }
/// # }
/// ```
pub struct DoubleFree;

/// A declared access keeps its buffer from being freed. A view does not: it is only a name, and its use is then an
/// error at run time.
/// ```compile_fail,E0505
/// # fn it(stream: &millpond::Stream, x: millpond::Buffer<u32>) -> millpond::Result<()> {
/// let declared = x.read();
/// stream.free(x)?;
/// stream.launch(declared, |_| ())
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, x: millpond::Buffer<u32>) -> millpond::Result<()> {
/// let declared = x.view().read();
/// stream.free(x)?;
/// stream.launch(declared, |_| ())
/// # }
/// ```
pub struct FreeWhileDeclared;

/// Memory that is declared as read cannot be written.
/// ```compile_fail,E0596
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// stream.launch(x.read(), |x| x.fill(1))
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// stream.launch(x.write(), |x| x.fill(1))
/// # }
/// ```
pub struct WriteOfRead;

/// A slice cannot leave its kernel.
/// ```compile_fail
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// let (sender, _receiver) = std::sync::mpsc::channel::<&'static [u32]>();
/// stream.launch(x.read(), move |x| sender.send(x).unwrap())
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// let (sender, _receiver) = std::sync::mpsc::channel::<Vec<u32>>();
/// stream.launch(x.read(), move |x| sender.send(x.to_vec()).unwrap())
/// # }
/// ```
pub struct SliceOutside;

/// A kernel runs later, so it can borrow nothing from the function that launches it.
/// ```compile_fail,E0597
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// let table = vec![1; 16];
/// let borrowed = &table;
/// stream.launch(x.write(), move |x| x.copy_from_slice(borrowed))
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// let table = vec![1; 16];
/// stream.launch(x.write(), move |x| x.copy_from_slice(&table))
/// # }
/// ```
pub struct BorrowingKernel;

/// A kernel runs on another thread, so it can capture only what may be sent there.
/// ```compile_fail,E0277
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// let sum = std::rc::Rc::new(std::cell::Cell::new(0));
/// stream.launch(x.read(), move |x| sum.set(x.iter().sum()))
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, x: &millpond::Buffer<u32>) -> millpond::Result<()> {
/// let sum = std::sync::Arc::new(std::sync::Mutex::new(0));
/// stream.launch(x.read(), move |x| *sum.lock().unwrap() = x.iter().sum())
/// # }
/// ```
pub struct KernelOfOneThread;

/// Device memory holds plain data: any bytes must be a value, and no value may need a drop.
/// ```compile_fail,E0277
/// # fn it(stream: &millpond::Stream, pool: &millpond::Pool) -> millpond::Result<()> {
/// let _ = stream.alloc::<String>(pool, 16)?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail,E0277
/// # fn it(stream: &millpond::Stream, pool: &millpond::Pool) -> millpond::Result<()> {
/// let _ = stream.alloc::<bool>(pool, 16)?;
/// # Ok(())
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream, pool: &millpond::Pool) -> millpond::Result<()> {
/// let _ = stream.alloc::<[f32; 3]>(pool, 16)?;
/// # Ok(())
/// # }
/// ```
pub struct NoPlainData;

/// Other crates cannot define an access.
/// ```compile_fail,E0277
/// struct Everything;
/// fn declares<A: millpond::Access>() {}
/// declares::<Everything>();
/// ```
/// ```
/// fn declares<A: millpond::Access>() {}
/// declares::<(millpond::Read<'static, u8>, millpond::Write<'static, u8>)>();
/// ```
pub struct ForeignAccess;

/// While the host has a slice of pinned memory, no copy into that memory can be submitted.
/// ```compile_fail,E0502
/// # use millpond::{Buffer, PinnedBuffer, Result, Stream};
/// # fn it(s: &Stream, x: Buffer<u32>, mut host: PinnedBuffer<u32>) -> Result<()> {
/// let seen = host.as_slice()?;
/// s.copy_to_pinned(x.read(), host.write())?;
/// assert_eq!(seen[0], 1);
/// # Ok(())
/// # }
/// ```
/// ```
/// # use millpond::{Buffer, PinnedBuffer, Result, Stream};
/// # fn it(s: &Stream, x: Buffer<u32>, mut host: PinnedBuffer<u32>) -> Result<()> {
/// let seen = host.as_slice()?;
/// assert_eq!(seen[0], 1);
/// s.copy_to_pinned(x.read(), host.write())?;
/// # Ok(())
/// # }
/// ```
pub struct CopyIntoWhatIsRead;

/// While the host has a mutable slice of pinned memory, no copy from that memory can be submitted.
/// ```compile_fail,E0502
/// # use millpond::{Buffer, PinnedBuffer, Result, Stream};
/// # fn it(s: &Stream, x: Buffer<u32>, mut host: PinnedBuffer<u32>) -> Result<()> {
/// let writes = host.as_mut_slice()?;
/// s.copy_from_pinned(x.write(), host.read())?;
/// writes[0] = 1;
/// # Ok(())
/// # }
/// ```
/// ```
/// # use millpond::{Buffer, PinnedBuffer, Result, Stream};
/// # fn it(s: &Stream, x: Buffer<u32>, mut host: PinnedBuffer<u32>) -> Result<()> {
/// let reads = host.as_slice()?;
/// s.copy_from_pinned(x.write(), host.read())?;
/// assert_eq!(reads[0], 1);
/// # Ok(())
/// # }
/// ```
pub struct CopyFromWhatIsWritten;

/// Only copies use pinned memory: a launch cannot get a slice of it.
/// ```compile_fail,E0277
/// # fn it(s: &millpond::Stream, host: millpond::PinnedBuffer<u32>) -> millpond::Result<()> {
/// s.launch(host.read(), |_| ())
/// # }
/// ```
/// ```
/// # use millpond::{Buffer, PinnedBuffer, Result, Stream};
/// # fn it(s: &Stream, x: Buffer<u32>, host: PinnedBuffer<u32>) -> Result<()> {
/// s.copy_from_pinned(x.write(), host.read())
/// # }
/// ```
pub struct LaunchOnTheHost;

/// The queue that `enqueue` lends to a closure cannot outlive the closure.
/// ```compile_fail
/// # fn it(stream: &millpond::Stream) {
/// let mut kept = None;
/// // SAFETY: nothing is enqueued.
/// let _ = unsafe { stream.enqueue((), |queue, ()| { kept = Some(queue); Ok(()) }) };
/// # }
/// ```
/// ```
/// # fn it(stream: &millpond::Stream) {
/// let mut kept = None;
/// // SAFETY: nothing is enqueued.
/// let _ = unsafe { stream.enqueue((), |queue, ()| { kept = Some(queue.raw_stream()); Ok(()) }) };
/// # }
/// ```
pub struct QueueOutside;

/// Memory is aligned to 512 B: elements that need more cannot be used, by any name of memory.
/// ```compile_fail,E0080
/// # use bytemuck::{Pod, Zeroable};
/// #[derive(Clone, Copy)]
/// #[repr(C, align(4096))]
/// struct Page([u8; 4096]);
/// unsafe impl Zeroable for Page {}
/// unsafe impl Pod for Page {}
/// # fn it(graph: &millpond::graph::Graph, node: millpond::graph::GraphNode) -> millpond::Result<()> {
/// let _ = graph.alloc_node::<Page>(node, 1)?;
/// # Ok(())
/// # }
/// # let _ = it as fn(&millpond::graph::Graph, millpond::graph::GraphNode) -> millpond::Result<()>;
/// ```
/// ```
/// # use bytemuck::{Pod, Zeroable};
/// #[derive(Clone, Copy)]
/// #[repr(C, align(512))]
/// struct Page([u8; 4096]);
/// unsafe impl Zeroable for Page {}
/// unsafe impl Pod for Page {}
/// # fn it(graph: &millpond::graph::Graph, node: millpond::graph::GraphNode) -> millpond::Result<()> {
/// let _ = graph.alloc_node::<Page>(node, 1)?;
/// # Ok(())
/// # }
/// # let _ = it as fn(&millpond::graph::Graph, millpond::graph::GraphNode) -> millpond::Result<()>;
/// ```
pub struct AlignedToMore;
