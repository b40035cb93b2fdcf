package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	firstOverwriteWait, lastOverwriteWait = time.Second, time.Minute
	// forgiven is the time without an overwrite after which the next one is the first again. It is
	// longer than the resync of most controllers.
	forgiven = 10 * time.Minute
)

// overwrites delays corrections of statuses that another controller keeps overwriting: both claim
// the Service, and neither stops.
type overwrites struct {
	wrote   map[types.UID]string // addresses that this controller wrote last
	backoff *flowcontrol.Backoff
}

func newOverwrites() overwrites {
	backoff := flowcontrol.NewBackOff(firstOverwriteWait, lastOverwriteWait)
	backoff.HasExpiredFunc = func(now, last time.Time, _ time.Duration) bool {
		return now.Sub(last) > forgiven
	}
	return overwrites{make(map[types.UID]string), backoff}
}

// delay returns how long to delay a change, and whether to send an Event about the overwrites:
// once, for the third in a row.
func (o overwrites) delay(ch change, now time.Time) (wait time.Duration, report bool) {
	uid, is, want := string(ch.from.UID), shown(ch.from), shown(ch.to)
	if o.wrote[ch.from.UID] != joined(want) || slices.Equal(is, want) {
		return 0, false
	}
	if o.backoff.IsInBackOffSinceUpdate(uid, now) {
		return o.backoff.Get(uid), false
	}
	o.backoff.Next(uid, now)
	return 0, o.backoff.Get(uid) == 4*firstOverwriteWait
}
