package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// reasonNotReady is the reason of the Event with the cause why a node's network isn't ready: a
// missing CNI plugin, a configuration file of another network that takes precedence, a route
// that can't be written. Probes report only that it isn't.
const reasonNotReady = "NetworkNotReady"

// repeatEvery is the interval of repeated Events: the API server deletes them after an hour.
const repeatEvery = 10 * time.Minute

// notReadyEvent is the last Event about a node that is not ready. Only the status worker uses it.
type notReadyEvent struct {
	since, lastSent time.Time
	text            string
}

// due reports whether an Event is to be sent now, and its text. It skips problems that last
// only a pass or two, and waiting for podCIDRs, which a condition reports.
func (e *notReadyEvent) due(o outcome, now time.Time) (text string, due bool) {
	if o.ready == nil || !o.hasPodCIDRs {
		*e = notReadyEvent{}
		return "", false
	}
	if e.since.IsZero() {
		e.since = now
	}
	text = o.ready.Error()
	wait := repeatEvery
	if text != e.text {
		wait = rewording
	}
	if now.Sub(e.since) < rewording || now.Sub(e.lastSent) < wait {
		return "", false
	}
	e.lastSent, e.text = now, text
	return text, true
}

func (s *status) reportNotReady(node *corev1.Node, o outcome, now time.Time) {
	if text, due := s.notReady.due(o, now); due {
		s.Recorder.Event(node, corev1.EventTypeWarning, reasonNotReady, text)
	}
}
