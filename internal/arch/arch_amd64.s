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

// func prefetchWriteRun(p *byte)
// PREFETCHW with a displacement: 0F 0D /1, disp8 as far as it goes, then disp32.
TEXT ·prefetchWriteRun(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08
	BYTE $0x0F; BYTE $0x0D; BYTE $0x48; BYTE $64
	BYTE $0x0F; BYTE $0x0D; BYTE $0x88; LONG $128
	BYTE $0x0F; BYTE $0x0D; BYTE $0x88; LONG $192
	RET

// func prefetchRead(p *byte)
TEXT ·prefetchRead(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET
