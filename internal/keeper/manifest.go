package keeper

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// What the file descriptor store holds of a broker, by name (FDNAME):
//
//	hugebus.entry.GENERATION.KEY   a sealed memfd with a manifest: an entry's data, and the numbers of its descriptors
//	hugebus.file.NUMBER.KEY        one descriptor of an entry; KEY is only there for people to read
//
// Generations and numbers come from one counter that only grows. The store keeps no order among descriptors of one name,
// so each has a name of its own. It also drops a descriptor whose open file it has already, under whatever name: so an
// open file that is stored once is named by every manifest that needs it.
const (
	entryPrefix = "hugebus.entry."
	filePrefix  = "hugebus.file."
)

// A storedName is what the name of a descriptor in the store says.
type storedName struct {
	entry  bool   // of a manifest
	number uint64 // generation, or number
	key    string
}

func (n storedName) String() string {
	prefix := filePrefix
	if n.entry {
		prefix = entryPrefix
	}
	return prefix + strconv.FormatUint(n.number, 10) + "." + n.key
}

// parseName reads a name; ok is false for one that is not the store's.
func parseName(s string) (n storedName, ok bool) {
	rest, isEntry := strings.CutPrefix(s, entryPrefix)
	if !isEntry {
		if rest, ok = strings.CutPrefix(s, filePrefix); !ok {
			return n, false
		}
	}
	number, key, ok := strings.Cut(rest, ".")
	if !ok || checkKey(key) != nil {
		return n, false
	}
	v, err := strconv.ParseUint(number, 10, 63)
	if err != nil || strconv.FormatUint(v, 10) != number {
		return n, false
	}
	return storedName{entry: isEntry, number: v, key: key}, true
}

// A manifest is the content of an entry's memfd.
type manifest struct {
	Key   string   `json:"key"`
	Files []uint64 `json:"files"`
	Data  []byte   `json:"data"`
}

// maxManifest bounds a manifest's size: the largest data in base64, numbers and key.
const maxManifest = MaxData/3*4 + 4 + MaxFiles*24 + 2*MaxKey + 256

// writeManifest puts a manifest into a sealed memfd.
func writeManifest(name storedName, m manifest) (*os.File, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return newBlob(name.String(), text)
}

// readManifest reads back what writeManifest wrote.
func readManifest(name storedName, f *os.File) (m manifest, err error) {
	text, err := readBlob(f, maxManifest)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	if m.Key != name.key || len(m.Files) > MaxFiles || int64(len(m.Data)) > MaxData {
		return m, fmt.Errorf("manifest is of %.*q with %d descriptors and %d bytes of data", MaxKey, m.Key, len(m.Files), len(m.Data))
	}
	return m, nil
}
