package config

import "testing"

func TestMistakesInWireGuard(t *testing.T) {
	checkMistakes(t, []mistake{
		{"another mode", inFile("wireguard: sometimes"), wireGuardKey, "sometimes", "overflow"},
		{"a phase of nothing", inFile("network: net\nwireguardPhase: prefer"), wireGuardPhaseKey, "prefer", "remove it"},
		{"the key as a path", inFile("wireguardPresharedKeyFile: " + tokenText), PresharedKeyFile, redacted, "/etc/underlay-wireguard/key"},
		{"no port", inFile("wireguardPort: 0"), wireGuardPortKey, "0", "1 to 65535"},
		{"without a cloud", inFile("provider: metal\nwireguard: overflow"), wireGuardKey, "overflow", "remove the key"},
		{"routed by nodes", inFile("network: net\nfamilies: {ipv4: node}\nwireguard: overflow"), wireGuardKey, "overflow", "families.ipv4: cloud"},
	})
}
