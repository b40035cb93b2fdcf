package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// usage is the resources that a process has used.
type usage struct {
	cpu        float64 // seconds
	residentMB float64 // maximum so far
	// ledgerBytes were written to the stored ledger.
	ledgerBytes float64
}

func (u usage) since(before usage) usage {
	u.cpu -= before.cpu
	u.ledgerBytes -= before.ledgerBytes
	return u
}

// usage reads Linux' account of the run's process; zero for a run within this process.
func (r *run) usage(b *testing.B) usage {
	b.Helper()
	if r.process == nil {
		return usage{}
	}
	stat := read(b, r.process.PID(), "stat")
	// The name in parentheses may contain spaces; the 12th and 13th fields after it are user and
	// system time in hundredths of a second, see proc(5).
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	u := usage{cpu: (parse(b, fields[11]) + parse(b, fields[12])) / 100}
	for line := range strings.Lines(read(b, r.process.PID(), "status")) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			u.residentMB = parse(b, strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB"))) / 1024
		}
	}
	if r.url != "" {
		u.ledgerBytes = r.metric(b, "underlay_ipam_ledger_written_bytes_total")
	}
	return u
}

func read(b *testing.B, pid int, file string) string {
	b.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		b.Fatal(err)
	}
	return string(content)
}

func parse(b *testing.B, text string) float64 {
	b.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// metric reads one value of the run's process. A process that has just started may not have read
// yet whose certificates it trusts, and refuses.
func (r *run) metric(b *testing.B, name string) (value float64) {
	b.Helper()
	var last error
	err := wait.PollUntilContextTimeout(b.Context(), 50*time.Millisecond, 10*time.Second, true,
		func(ctx context.Context) (bool, error) {
			value, last = r.readMetric(ctx, name)
			return last == nil, nil
		})
	if err != nil {
		b.Fatal(errors.Join(err, last))
	}
	return value
}

func (r *run) readMetric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := r.metrics.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("%s: the metrics have no %s", answer.Status, name)
}
