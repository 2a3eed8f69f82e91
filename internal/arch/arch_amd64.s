//go:build amd64 && !purego && !race

#include "textflag.h"

// func Pause(n uint32)
TEXT ·Pause(SB), NOSPLIT, $0-4
	MOVL n+0(FP), AX
	TESTL AX, AX
	JZ done
loop:
	PAUSE
	SUBL $1, AX
	JNZ loop
done:
	RET

// func prefetchWrite(p *byte)
// Go's assembler has no PREFETCHW: 0F 0D /1 with (AX).
TEXT ·prefetchWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	RET

// func prefetchRead(p *byte)
TEXT ·prefetchRead(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET
