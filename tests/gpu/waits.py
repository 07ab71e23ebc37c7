#!/usr/bin/env python3
"""What waits for lanes of a warp wait for on a GPU: small kernels of which lanes take different ways, each in a process of its own.

usage: tests/gpu/waits.py

Prints for each kernel whether it hangs, or what lanes 0, 15, 16, 24 and 31 of the first warp left. `ws` is `bar.warp.sync -1`, `op` a wait as
the guard writes it, `ask` the question whether all lanes are here (docs/decisions/0033-no-wait-hangs.md). Ends with 77 where there is no GPU,
and with 1 where a kernel hangs that is written as the guard does it. Needs libcuda and a GPU of sm_90.
"""
import ctypes
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 own, .param .u32 m)
{ .reg .pred %p<8>; .reg .pred %q; .reg .b32 %m; .reg .b32 %lo; .reg .b32 %r<32>; .reg .b64 %d<8>;
 ld.param.u64 %d1,[own]; ld.param.u32 %r9,[m]; mov.u32 %r1,%tid.x; and.b32 %r2,%r1,31;
 setp.ge.u32 %p1,%r2,16; setp.ge.u32 %p2,%r2,24; mul.wide.u32 %d2,%r1,4; add.u64 %d1,%d1,%d2; mov.u32 %r8,7; mov.u32 %r10,0;
"""
TAIL = """
out: add.u32 %r8,%r8,%r10; st.global.u32 [%d1],%r8; ret; }
"""
def two(a,b): return f"@%p1 bra other;\n{a}\nbra out;\nother:\n{b}\n"
def three(a,b,c): return f"@%p2 bra third;\n@%p1 bra other;\n{a}\nbra out;\nother:\n{b}\nbra out;\nthird:\n{c}\n"
pre2="ld.volatile.global.u32 %r10,[%d1+256]; xor.b32 %r8,%r8,9; "
post="st.volatile.global.u32 [%d1+512],%r8; "
ws="bar.warp.sync -1;"
nsh,nsh2="shfl.sync.idx.b32 %r10,%r2,0,31,-1;","shfl.sync.bfly.b32 %r10,%r2,1,31,-1;"
nvo,nma,nre,nel="vote.sync.ballot.b32 %r10,%p1,-1;","match.any.sync.b32 %r10,%r2,-1;","redux.sync.add.u32 %r10,%r2,-1;","elect.sync %r10|%p5,-1;"
am="activemask.b32 %m;"
meet="vote.sync.ballot.b32 %m,1,-1;"
ask=meet+"activemask.b32 %lo; setp.ne.s32 %q,%lo,%m; @%q exit;"
sh="shfl.sync.idx.b32 %r10,%r2,0,31,%m;"; ma="match.any.sync.b32 %r10,%r2,%m;"; el="elect.sync %r10|%p5,%m;"
op,op2,op3=meet+am+sh,meet+am+ma,meet+am+el
o1,o2=ws+am+sh,ws+am+ma
some="activemask.b32 %m; match.any.sync.b32 %m,%r9,%m; setp.ne.s32 %q,%m,%r9; @%q exit;"
def loop(n,b,label): return f"mov.u32 %r12,0; {label}: {b}{post}add.u32 %r12,%r12,1; setp.lt.u32 %p4,%r12,{n}; @%p4 bra {label};"
spin="S%d: add.u32 %%r8,%%r8,1; ld.volatile.global.u32 %%r11,[%%d1]; setp.lt.u32 %%p4,%%r8,200000; @%%p4 bra S%d;"
# Natively: what PTX leaves open, and what it does not. A name says what lanes 0 to 15 do and what the others, or the lanes from
# 24 on, do.
NATIVE={
"shfl|ws": two(nsh,ws), "vote|ws": two(nvo,ws), "match|ws": two(nma,ws), "redux|ws": two(nre,ws), "elect|ws": two(nel,ws),
"shfl|shfl of another kind": two(nsh,nsh2), "barrier|ws": two("barrier.sync 0;",ws), "bar|ws": two("bar.sync 0;"+post,pre2+ws+post+post),
"ws of masks that overlap": two("bar.warp.sync 0x1ffff;","bar.warp.sync 0xffff8000;"), "ws of all|ws of some": two(ws,"bar.warp.sync 0xffff0001;"),
"ws|ws": two(ws+post,pre2+ws+post+post), "ws|ws|ws": three(ws+post,pre2+ws+post+post,pre2+pre2+ws+post),
"ws 3 times|ws 5 times": two(loop(3,ws,"L1"),loop(5,ws,"L2")), "ws|exit": two(ws,"exit;"), "ws|spin exit": two(ws,spin%(1,1)+"exit;"),
"shfl|spin exit": two(nsh,spin%(1,1)+"exit;"), "bar|spin exit": two("bar.sync 0;",spin%(1,1)+"exit;"),
"ws bar|ws ws": two(ws+"bar.sync 0;"+ws+post,pre2+ws+ws+post+post), "ws bar|ws bar": two(ws+"bar.sync 0;"+post,pre2+ws+"bar.sync 0;"+post+post),
"spin ws, here": "@!%p1 bra J; "+spin%(1,1)+"\nJ: "+ws+"activemask.b32 %r8;", "ws here|ws here": two(ws+"activemask.b32 %r8;"+post,pre2+ws+"activemask.b32 %r8;"+post+post),
}
# As the guard writes them: none may hang.
GUARDED={
"vote|vote": two(meet+"mov.b32 %r8,%m;",pre2+meet+"mov.b32 %r8,%m;"+post+post),
"vote|exit": two(meet+"mov.b32 %r8,%m;",pre2+"exit;"),
"vote|spin vote": two(meet+"mov.b32 %r8,%m;",spin%(1,1)+meet+"mov.b32 %r8,%m;"),
"if vote; vote": f"@%p1 bra skip; {pre2}{meet}{post} skip: {post}{meet}{post} mov.b32 %r8,%m;",
"if ws; ws": f"@%p1 bra skip; {pre2}{ws}{post} skip: {post}{ws}{post}",
"if ws;": f"@%p1 bra skip; {pre2}{ws}{post} skip: {post}",
"lane turns ws": f"mov.u32 %r12,0; L1: {ws}{post} add.u32 %r12,%r12,1; setp.le.u32 %p4,%r12,%r2; @%p4 bra L1; {post}{ws}{post}",
"lane turns vote": f"mov.u32 %r12,0; L1: {meet}{post} add.u32 %r12,%r12,1; setp.le.u32 %p4,%r12,%r2; @%p4 bra L1; {post}{meet}{post}",
"lane turns op; ask bar op2": f"mov.u32 %r12,0; L1: {op}{post} add.u32 %r12,%r12,1; setp.le.u32 %p4,%r12,%r2; @%p4 bra L1; {post}{ask}bar.sync 0;{op2}",
"3 ops|5 ops": two(loop(3,op,"L1"),loop(5,op2,"L2")),
"3 ws ops|5 ws ops": two(loop(3,o1,"L1"),loop(5,o2,"L2")),
"op|op2|op3": three(op+post,pre2+op2+post+post,pre2+pre2+op3+post),
"o1|o2|ws": three(o1+post,pre2+o2+post+post,pre2+pre2+ws+post),
"op ask bar op|op2 op2": two(op+ask+"bar.sync 0;"+op+post,pre2+op2+op2+post+post),
"op ask bar op|op2 ask bar op2": two(op+ask+"bar.sync 0;"+op+post,pre2+op2+ask+"bar.sync 0;"+op2+post+post),
"op ask barrier op|op2 ask barrier op2": two(op+ask+"barrier.sync 0;"+op+post,pre2+op2+ask+"barrier.sync 0;"+op2+post+post),
"ask bar|ask barrier": two(ask+"bar.sync 0;"+post,pre2+ask+"barrier.sync 0;"+post+post),
"ask bar|exit": two(ask+"bar.sync 0;"+post,pre2+"exit;"),
"ask bar|spin exit": two(ask+"bar.sync 0;"+post,spin%(1,1)+"exit;"),
"ask bar|spin op": two(ask+"bar.sync 0;"+post,spin%(1,1)+op),
"one place: spin, ask bar shfl -1": "@!%p1 bra J; "+spin%(1,1)+"\nJ: mov.u32 %r8,0; "+ask+"bar.sync 0; shfl.sync.idx.b32 %r10,%r2,0,31,-1;",
"one place: exit4, spin, ask barrier shfl -1": "setp.lt.u32 %p3,%r2,4; @%p3 exit; @!%p1 bra J; "+spin%(1,1)+"\nJ: mov.u32 %r8,0; "+ask+"barrier.sync 0; vote.sync.ballot.b32 %r10,%p1,-1;",
"some|some": two(some+sh+post,pre2+some+sh+post+post),
"some|op": two(some+sh+post,pre2+op+post+post),
"some ask bar|op": two(some+sh+ask+"bar.sync 0;"+post,pre2+op+post+post),
"ask bar, ways, bar shfl": ask+"bar.sync 0; @!%p1 bra J; "+spin%(1,1)+"\nJ: bar.sync 0; mov.u32 %r8,0; shfl.sync.idx.b32 %r10,%r2,0,31,-1;",
"ask bar, op on one way, ask bar": ask+"bar.sync 0; @!%p1 bra J; "+op+post+"\nJ: mov.u32 %r8,0;"+ask+"bar.sync 0;",
}
P={**{"native "+name: text for name,text in NATIVE.items()},**GUARDED}
def one(name):
    cu=ctypes.CDLL("libcuda.so.1"); v=ctypes.c_void_p
    def ok(r,w):
        if r: print(f"{name:46} {w} -> {r}"); os._exit(0)
    ok(cu.cuInit(0),"init"); dev=ctypes.c_int(); cu.cuDeviceGet(ctypes.byref(dev),0); ctx=v(); ok(cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctx),dev),"ctx"); cu.cuCtxSetCurrent(ctx)
    text=(HEAD+P[name]+TAIL).encode(); mod=v(); ok(cu.cuModuleLoadData(ctypes.byref(mod),text),"load"); f=v(); ok(cu.cuModuleGetFunction(ctypes.byref(f),mod,b"k"),"fn")
    mem=ctypes.c_uint64(); ok(cu.cuMemAlloc_v2(ctypes.byref(mem),4096),"alloc"); cu.cuMemsetD8_v2(mem,0,4096)
    m=ctypes.c_uint32(0xffff); args=(v*2)(ctypes.cast(ctypes.byref(mem),v),ctypes.cast(ctypes.byref(m),v))
    ok(cu.cuLaunchKernel(f,1,1,1,64,1,1,0,None,args,None),"launch")
    end=time.time()+1.5; r=600
    while time.time()<end and r==600: r=cu.cuStreamQuery(None); time.sleep(0.002)
    if r==600: print(f"{name:46} hangs",flush=True); os._exit(0)
    ok(r,"run"); host=(ctypes.c_uint32*64)(); ok(cu.cuMemcpyDtoH_v2(host,mem,256),"copy")
    print(f"{name:46} done {host[0]:x} {host[15]:x} {host[16]:x} {host[24]:x} {host[31]:x}",flush=True); os._exit(0)
if len(sys.argv)>1: one(sys.argv[1])
try: ctypes.CDLL("libcuda.so.1")
except OSError: print("skipped: no GPU"); sys.exit(77)
def sub(n):
    try: return subprocess.run([sys.executable,__file__,n],capture_output=True,text=True,timeout=40).stdout.strip() or n+" nothing"
    except subprocess.TimeoutExpired: return n+" hangs"
ended=0
with ThreadPoolExecutor(6) as pool:
    for name,line in zip(P,pool.map(sub,P)):
        print(line,flush=True)
        ended|="done" not in line and name in GUARDED
sys.exit(ended)
