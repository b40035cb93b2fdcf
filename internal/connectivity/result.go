package connectivity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Failure says how a trial failed.
type Failure string

// The failures.
const (
	// Silent: nothing came back.
	Silent Failure = "no answer"
	// Refused: the address answered that nobody listens, or a filter rejected it.
	Refused Failure = "refused"
	// Unreachable: a host or router on the way said that there is no way.
	Unreachable Failure = "unreachable"
	// Stranger: somebody else answered.
	Stranger Failure = "another answers"
	// Status: an HTTP server answered with another status than 200.
	Status Failure = "wrong status"
	// Other is everything else; see Detail.
	Other Failure = "failed"
)

// Result is what became of a trial.
type Result struct {
	Trial
	Failure Failure `json:"failure,omitempty"`
	// Detail is the failure in the kernel's or the answerer's words.
	Detail string `json:"detail,omitempty"`
	// Took is the time to the first answer, in microseconds.
	Took int64 `json:"tookMicroseconds,omitempty"`
	// Sent and Lost count datagrams.
	Sent int `json:"sent,omitempty"`
	Lost int `json:"lost,omitempty"`
	// Carried is the largest packet that arrived, Interface the MTU of the pod's
	// interface, both in bytes with the IP header.
	Carried   int `json:"carriedBytes,omitempty"`
	Interface int `json:"interfaceBytes,omitempty"`
}

// State is a result in a word.
type State string

// The states, best first.
const (
	Open   State = "open"
	Slow   State = "slow"
	Lossy  State = "lossy"
	Narrow State = "narrow"
	Closed State = "closed"
)

// State judges a result. Slower than slow is Slow; 0: nothing is. The outside may be
// far away.
func (r Result) State(slow time.Duration) State {
	switch {
	case r.Failure != "":
		return Closed
	case r.Carried < r.Interface:
		return Narrow
	case r.Lost > 0:
		return Lossy
	case slow > 0 && r.Path != Outside && r.Path != LoadBalancer && time.Duration(r.Took)*time.Microsecond > slow:
		return Slow
	}
	return Open
}

func (s State) rank() int { return slices.Index([]State{Open, Slow, Lossy, Narrow, Closed}, s) }

// words says what is not as it should be, in a matrix's cell.
func (r Result) words(s State) string {
	switch s {
	case Closed:
		return string(r.Kind) + " " + string(r.Failure)
	case Narrow:
		return fmt.Sprintf("mtu %d < %d", r.Carried, r.Interface)
	case Lossy:
		return fmt.Sprintf("%d of %d lost", r.Lost, r.Sent)
	case Slow:
		return "slow " + took(r.Took)
	}
	return took(r.Took)
}

// took is a duration with three digits at most.
func took(microseconds int64) string {
	ms := float64(microseconds) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// mark begins the lines of a log that are results; the last line is the mark and end.
const (
	mark = "underlay-probe "
	end  = "end"
)

// WriteResults writes a result a line, which ReadResults finds again in a log.
func WriteResults(out io.Writer, results []Result) error {
	for _, r := range results {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s%s\n", mark, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, mark+end)
	return err
}

// ErrCut is a log without its end.
var ErrCut = errors.New("the probe's log is not complete")

// ReadResults reads them from a probe's log. Results of trials that were not asked
// for are left out: whoever may write to a pod's log must not add to the matrix.
func ReadResults(log []byte, asked []Trial) ([]Result, error) {
	known := make(map[Trial]bool, len(asked))
	for _, t := range asked {
		known[t] = true
	}
	var all []Result
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, is := strings.CutPrefix(lines.Text(), mark)
		switch {
		case !is:
			continue
		case text == end && len(known) > 0:
			return all, fmt.Errorf("%w: %d of %d trials are missing", ErrCut, len(known), len(asked))
		case text == end:
			return all, nil
		}
		var r Result
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return all, fmt.Errorf("the probe's log: %w", err)
		}
		if known[r.Trial] {
			delete(known, r.Trial)
			all = append(all, r)
		}
	}
	return all, errors.Join(ErrCut, lines.Err())
}
