//go:build linux

package main

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Memory that a pass has freed is returned to the system although nothing is allocated afterwards.
func TestMemoryIsReleasedAfterAPass(t *testing.T) {
	const piece, pieces = 1 << 20, 64
	kept := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go releaseMemory(ctx)
		left := make([][]byte, pieces)
		for i := range left {
			left[i] = make([]byte, piece)
		}
		before := kept()
		runtime.KeepAlive(left)
		time.Sleep(releaseEvery + 1)
		synctest.Wait()
		if after := kept(); before < after+piece*pieces/2 {
			t.Errorf("%d MiB of the heap are kept, %d MiB before", after>>20, before>>20)
		}
	})
}
