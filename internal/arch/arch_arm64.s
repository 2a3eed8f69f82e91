//go:build arm64 && !purego && !race

#include "textflag.h"

// func Pause(n uint32)
TEXT ·Pause(SB), NOSPLIT, $0-4
	MOVWU n+0(FP), R0
	CBZ R0, done
loop:
	ISB $15
	SUBW $1, R0
	CBNZ R0, loop
done:
	RET

// func prefetchWrite(p *byte)
TEXT ·prefetchWrite(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PSTL1KEEP
	RET

// func prefetchWriteRun(p *byte)
TEXT ·prefetchWriteRun(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PSTL1KEEP
	PRFM 64(R0), PSTL1KEEP
	PRFM 128(R0), PSTL1KEEP
	PRFM 192(R0), PSTL1KEEP
	RET

// func prefetchRead(p *byte)
TEXT ·prefetchRead(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func StoreStore()
TEXT ·StoreStore(SB), NOSPLIT, $0-0
	DMB $0xA // ISHST
	RET

// func LoadLoad()
TEXT ·LoadLoad(SB), NOSPLIT, $0-0
	DMB $0x9 // ISHLD
	RET
