package memstore

// A ring is a queue whose elements can be read by index. Its zero value is empty.
type ring[T any] struct {
	buffer []T // its length is 0 or a power of two
	head   int // index of the oldest element
	n      int
}

const minRing = 4 // elements

func (r *ring[T]) len() int { return r.n }

// at returns an element; 0 is the oldest one.
func (r *ring[T]) at(i int) *T { return &r.buffer[(r.head+i)&(len(r.buffer)-1)] }

// growth returns by how many elements the buffer grows when one is added to n elements.
func (r *ring[T]) growth(n int) int {
	if n < len(r.buffer) {
		return 0
	}
	return max(2*n, minRing) - len(r.buffer)
}

// push adds an element and returns by how many elements the buffer has grown.
func (r *ring[T]) push(v T) (grown int) {
	if grown = r.growth(r.n); grown > 0 {
		r.resize(len(r.buffer) + grown)
	}
	r.n++
	*r.at(r.n - 1) = v
	return grown
}

// pop removes the oldest element, and returns by how many elements the buffer has shrunk. The memory
// of removed elements is freed gradually.
func (r *ring[T]) pop() (v T, shrunk int) {
	var zero T
	oldest := r.at(0)
	v = *oldest
	*oldest = zero
	r.head = (r.head + 1) & (len(r.buffer) - 1)
	r.n--
	if r.n <= len(r.buffer)/4 && len(r.buffer) > minRing {
		shrunk = len(r.buffer) / 2
		r.resize(len(r.buffer) - shrunk)
	}
	return v, shrunk
}

func (r *ring[T]) resize(size int) {
	buffer := make([]T, size)
	for i := range r.n {
		buffer[i] = *r.at(i)
	}
	r.buffer, r.head = buffer, 0
}
