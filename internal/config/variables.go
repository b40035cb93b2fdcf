package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// variablePrefix is the prefix by which a variable is a setting of the cloud or of dedicated servers;
// empty: it is none.
func variablePrefix(name string) string {
	for _, prefix := range []string{"HCLOUD_", "ROBOT_"} {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// UnknownVariables warns of each variable in environ, a list as os.Environ returns
// it, that looks like a setting and is none: without a word, whoever mistyped one,
// or brought it along from another program, would wait for its effect. It is no
// error, because a cluster that works must not lose its controllers over a
// variable that does nothing. A value is never repeated, it might be a secret.
func UnknownVariables(environ []string) []Warning {
	set := map[string]bool{}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); value != "" && variablePrefix(name) != "" {
			set[name] = true
		}
	}
	known := knownVariables()
	var warnings []Warning
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(known, name) && !ofService(name, set) {
			warnings = append(warnings, Warning{Field: name, Problem: "is not known and has no effect; " + advice(name, known)})
		}
	}
	return warnings
}

// knownVariables are those that have an effect, and those of which foreign knows
// why they have none.
func knownVariables() []string {
	var names []string
	for _, row := range settings(&loader{}) {
		if variablePrefix(row.env) != "" {
			names = append(names, row.env)
		}
	}
	for _, v := range foreign() {
		names = append(names, v.name)
	}
	return names
}

// advice names the nearest known variable of the same prefix, which doesn't make two
// names alike.
func advice(name string, known []string) string {
	prefix := variablePrefix(name)
	var endings []string
	for _, k := range known {
		if ending, same := strings.CutPrefix(k, prefix); same {
			endings = append(endings, ending)
		}
	}
	if nearest := nearestKey(strings.TrimPrefix(name, prefix), endings); nearest != "" {
		return "did you mean " + prefix + nearest + "?"
	}
	return "unset it; docs/reference/configuration.md lists those that have one"
}

// ofService reports whether a variable is one of those by which a pod learns of the
// Services in its namespace, such as hcloud-csi's. Each Service has several, and
// always <NAME>_SERVICE_HOST.
// https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
func ofService(name string, set map[string]bool) bool {
	for other := range set {
		service, is := strings.CutSuffix(other, "_SERVICE_HOST")
		if is && (name == service+"_PORT" || strings.HasPrefix(name, service+"_PORT_") || strings.HasPrefix(name, service+"_SERVICE_")) {
			return true
		}
	}
	return false
}

// variable is one that the Hetzner cloud controller manager reads and
// Underlay does not.
type variable struct {
	name, why string
	// quiet is the boolean that asks for nothing but what Underlay does
	// anyway; nil: any value is worth a warning.
	quiet *bool
}

// foreign lists the variables whose users would otherwise wait in vain for an
// effect. Values are never repeated: some are secrets.
func foreign() []variable {
	yes, no := true, false
	const cache = "one list of the servers serves all controllers, and is read again when it has to be"
	return []variable{
		{name: "HCLOUD_DEBUG", quiet: &no, why: "there is no dump of API traffic"},
		{name: "HCLOUD_METRICS_ENABLED", why: "metrics are always served on the secure port"},
		{name: "HCLOUD_METRICS_ADDRESS", why: "metrics are always served on the secure port"},
		{name: "HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK", quiet: &yes, why: "whether the own server is attached to the network is never checked; each Node's attachment is"},
		{name: "HCLOUD_INSTANCES_ZONE_LABEL_ENABLED", quiet: &yes, why: "every Node gets the label of its zone"},
		{name: "HCLOUD_SERVER_CACHE_MODE", why: cache},
		{name: "HCLOUD_SERVER_CACHE_MAX_AGE", why: cache},
		{name: "ROBOT_CACHE_TIMEOUT", why: "one list of the dedicated servers is kept for five minutes, and read again sooner when it has to be"},
		{name: "ROBOT_RATE_LIMIT_WAIT_TIME", why: "requests are counted and wait for their quota; after a refusal they rest for a minute, and longer each time"},
	}
}

func (l *loader) foreignVariables() {
	for _, v := range foreign() {
		text := l.getenv(v.name)
		if text == "" {
			continue
		}
		if on, err := strconv.ParseBool(text); err == nil && v.quiet != nil && on == *v.quiet {
			continue
		}
		l.warn(v.name, "has no effect: %s", v.why)
	}
}
